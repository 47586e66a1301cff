"""Whatever comes in, one answer goes out and the process lives: a corpus of odd JSON, floods and giant lines."""

from __future__ import annotations

from support.agent_process import RpcProcess, Start
from support.contract import proves

MB = 1024 * 1024

ODD_LINES = [
    b"[1,]", b"[,1]", b"[1 2]", b"[01]", b"[+1]", b"[.5]", b"[1.]", b"[-]", b"[1e]", b"[0x1]", b"[NaN]", b"[-Infinity]",
    b'["a\x00b"]', b'["\t"]', b'["\\x"]', b'["\\u12"]', b'["\\ud800\\u"]', b'["\\uDFAA"]', b'["\\ud83d\\ude00"]',
    b"['a']",
    b'{"a" 1}', b'{"a":}', b'{a:1}', b'{"a":1,}', b'{"a":1,,"b":2}', b'{1:2}', b'{"a":1}}', b'{"a":1]', b'["a"', b'["a',
    b"tru", b"True", b"nulll", b"\xef\xbb\xbf1", b"\xff\xff", b"[\xe9]", b'["\xed\xa0\x80"]', b'["\xc0\xaf"]', b"\x0c1",
    b"[1]\x00", b"// comment", b"/* */ 1", b'{"type":"get_state"} {"type":"get_state"}', b'"unclosed', b"[[[",
    b"]]]", b"{",
    b"[" * 500 + b"]" * 500, b"[" * 100_000 + b"]" * 100_000, b'{"type":' * 50_000, b"[" * 200_000,
    b"9" * 5_000, b"-" + b"9" * 400, b"1e400", b"-1e-400", b"123123e100000", b"0.1" + b"1" * 5_000, b"1E+9999999999",
    b'{"id":' + b"7" * 5_000 + b',"type":"get_state"}', b'{"id":1e400,"type":"get_state"}',
    b'{"id":' + b"[" * 2_000 + b"]" * 2_000 + b',"type":"get_state"}',
    b'{"type":"prompt","message":{"deep":' + b"[" * 900 + b"]" * 900 + b"}}",
    b'{"type":"set_model","provider":"\\ud800","modelId":"\\u0000"}', b'{"type":"\\ud800"}',
    b'{"type":"' + b"x" * MB + b'"}',
    b'{"type":"__class__"}', b'{"type":"constructor"}', b'{"type":""}', b'{"type":["get_state"]}', b'{"type":{"a":1}}',
    b"null", b"true", b"0", b"-0", b'""', b"[]", b"{}", b" ", b"\t", b"\r", b"",
]  # fmt: skip


@proves("hostile.corpus")
def test_every_odd_line_gets_one_answer_and_the_process_lives(agent: RpcProcess) -> None:
    for line in ODD_LINES:
        agent.send(line)
    agent.ask("get_state")
    assert len(agent.since(0, "response")) == len(ODD_LINES) + 1
    assert not agent.since(0, "agent_start")


@proves("hostile.flood")
def test_a_flood_of_commands_that_nobody_reads_is_held_back_with_flat_memory(start: Start) -> None:
    agent = start(reads=False, by_exec=True)
    agent.send({"id": "first", "type": "get_state"})
    agent.wait_ready()
    before = agent.resident()
    count = 16_000  # with their ids the answers have more than 64 MB, and so have the commands
    flood = b'{"id":"%s","type":"get_state"}\n' % (b"f" * 4200) * count
    writer = agent.write_in_background(flood + b'{"id":"last","type":"get_state"}\n')
    agent.wait_blocked(writer)
    assert agent.resident() - before <= 64 * MB
    agent.start_reading()
    assert agent.response("last", deadline=50)["success"]
    writer.join()
    assert len(agent.since(0, "response")) == count + 2
    assert agent.resident() - before <= 64 * MB


@proves("hostile.giant_line")
def test_a_giant_line_is_skipped_with_flat_memory_and_the_next_is_answered(start: Start) -> None:
    agent = start(by_exec=True)
    agent.ask("get_state")
    before = agent.resident()
    agent.write(b'{"id":"big","type":"prompt","message":"')
    for _ in range(256):
        agent.write(b"x" * MB)
    peak = agent.resident()
    agent.write(b'"}\n{"id":"after","type":"get_state"}\n')
    assert agent.response("after")["success"]
    failure = next(record for record in agent.since(0, "response") if not record["success"])
    assert "longer than" in failure["error"]
    assert peak - before <= 64 * MB
    assert agent.resident() - before <= 64 * MB


@proves("hostile.record_cap")
def test_the_cap_of_a_line_can_be_set_and_input_resumes_at_the_next_line(start: Start) -> None:
    agent = start("--record-cap", "2048")
    agent.send({"id": "x" * 4000, "type": "get_state"}, {"id": "ok", "type": "get_state"})
    assert agent.response("ok")["success"]
    assert [record["success"] for record in agent.since(0, "response")] == [False, True]
