"""What only a client has: another process, its death, its time-outs, lines of any length."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.sdk.remote.transports import END_SECONDS
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess
from support.processes import eventually, is_alive
from support.sdk_agents import Conversations, call

# An agent in a few lines: `answers` maps a command to Python that makes lines from its record `r`.
STAND_IN = """
import json, os, sys, time
def say(**record): print(json.dumps(record), flush=True)
def answer(r, **more): say(type="response", id=r["id"], command=r["type"], success=True, **more)
{before}
for line in sys.stdin:
    r = json.loads(line)
    if r["type"] == "hello":
        limits = dict(recordBytes=1, commandsInFlight=1)
        answer(r, data=dict(name="x", version="1", dialect="pi-latest", features=[], limits=limits))
    {body}
{after}
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Conversations]:
    made = Conversations("subprocess", tmp_path, by_exec=True)
    yield made
    made.stop()


def start_stand_in(
    folder: Path, body: str = "pass", before: str = "", after: str = "", **options: Any
) -> pigeon.Client:
    path = folder / "stand_in.py"
    path.write_text(STAND_IN.format(body=body, before=before, after=after))
    return pigeon.Client(command=[sys.executable, "-S", str(path)], **options)


def kill(client: pigeon.Client) -> None:
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)


async def test_the_first_reader_gets_what_a_program_says_before_it_is_asked_anything(tmp_path: Path) -> None:
    # Nothing is kept for a reader that comes after a command.
    for before, first in ([], "AgentStart"), (["abort"], "TurnStart"):
        body = 'if r["type"] != "hello": answer(r); say(type="turn_start") if r["type"] == "abort_bash" else None'
        async with start_stand_in(tmp_path, body, 'say(type="agent_start")') as client:
            for name in before:
                await getattr(client, name)()
            events = client.events()
            await client.abort_bash()
            assert type(await anext(events)).__name__ == first


async def test_death_is_raised_in_every_call_and_iteration_that_waits(own: Conversations) -> None:
    own.script({"text": "On", "hang": True})
    client = own.start()
    assert isinstance(client, pigeon.Client)
    async with client:
        events = client.events()
        running = asyncio.ensure_future(client.run("talk"))
        async for event in events:
            if isinstance(event, pigeon.TextDelta):
                break
        shell = asyncio.ensure_future(client.bash("sleep 60"))
        await client.get_state()
        kill(client)
        for waiting in (running, shell, _all(events)):
            with pytest.raises(pigeon.ProcessDied, match="signal 9") as death:
                await waiting
            assert death.value.exit_code == -signal.SIGKILL
        with pytest.raises(pigeon.ProcessDied):
            await client.get_state()


async def _all(events: Any) -> list[Any]:
    return [event async for event in events]


async def test_death_at_the_start_tells_the_last_words(own: Conversations) -> None:
    client = own.start(approval_mode="never")
    with pytest.raises(pigeon.ProcessDied, match=r"exit code 2: Error: Invalid approval mode"):
        await client.open()


async def test_a_key_goes_by_stdin_where_no_list_of_processes_shows_it(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('["Hello."]')
    told: list[str] = []
    command = [sys.executable, "-m", "pigeon", "--mode", "rpc", "--model", "scripted/s.json", "--no-session"]
    env = {**os.environ, "HOME": str(tmp_path)}
    async with pigeon.Client(
        command=command, cwd=str(tmp_path), env=env, api_key="sk-kept-from-lists", on_stderr=told.append
    ) as client:
        assert (await client.run("hello")).text == "Hello."
        words = _words_of(client)
        assert b"--api-key-file" in words
        assert not any(b"sk-kept" in word for word in words)
        await client.restart()
        assert (await client.get_state()).model is not None
    assert told == []


def _words_of(client: pigeon.Client) -> list[bytes]:
    return Path(f"/proc/{client.pid}/cmdline").read_bytes().split(b"\0")


async def test_each_line_of_stderr_is_told_when_it_is_written(tmp_path: Path) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    before = "import sys; print('first', 'part', file=sys.stderr); print('second', file=sys.stderr, flush=True)"
    async with start_stand_in(tmp_path, before=before, on_stderr=told.put_nowait):
        assert [await told.get(), await told.get()] == ["first part", "second"]


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(pigeon.StartupError, match="/no/such: No such file"):
        await pigeon.Client(command=["/no/such"]).open()
    with pytest.raises(pigeon.StartupError, match="No such file"):
        await pigeon.Client(f"unix:{tmp_path}/none").open()


@pytest.mark.parametrize(
    ("options", "reason"),
    [({}, "either"), ({"command": ["x"], "url": "unix:x"}, "either"), ({"url": "ftp://x"}, "unix:"),
     ({"url": "http://x"}, "cwd="), ({"url": "ws://x/id", "cwd": "/"}, "new conversation"),
     ({"url": "ws://x/id?token=secret"}, "token="), ({"url": "ws://me:secret@x/id"}, "token="),
     ({"url": "ws://x/id", "session": "f"}, "session="), ({"command": ["x"], "token": "t"}, "token="),
     ({"url": "ws://x/a/b"}, "id of a session"), ({"url": "unix:"}, "unix:PATH"),
     ({"command": ["x"], "api_key": "a\nb"}, "one line"), ({"url": "unix:x", "api_key": "k"}, "for command="),
     ({"command": "pigeon --mode rpc"}, "list of words"), ({"command": []}, "list of words")],
)  # fmt: skip
def test_bad_arguments_are_told_at_once(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pigeon.Client(**options)


async def test_restart_goes_on_with_the_session(own: Conversations) -> None:
    own.script("One.", "Two.")
    client = own.start()
    assert isinstance(client, pigeon.Client)
    async with client:
        first = await client.run("first")
        kill(client)
        with pytest.raises(pigeon.ProcessDied):
            await client.get_state()
        await client.restart()
        assert (await client.run("second")).session_id == first.session_id
        assert (await client.get_session_stats()).user_messages == 2


async def test_restart_goes_on_with_the_session_that_was_current_at_the_death(
    own: Conversations,
) -> None:
    own.script("One.", {"text": "Two", "hang": True})
    client = own.start()
    assert isinstance(client, pigeon.Client)
    async with client:
        await client.run("first")
        await client.new_session()
        events = client.prompt("second")
        while not isinstance(await anext(events), pigeon.TextDelta):
            pass
        kill(client)
        with pytest.raises(pigeon.ProcessDied):
            await client.get_state()
        await client.restart()
        messages = (await client.get_messages()).messages
    assert "second" in str(messages)
    assert "first" not in str(messages)


async def test_a_close_that_was_cancelled_goes_to_its_end(tmp_path: Path) -> None:
    client = start_stand_in(tmp_path)
    await client.open()
    pid = client.pid
    assert pid is not None
    closing = asyncio.ensure_future(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    await client.close()
    assert not is_alive(pid)


async def test_a_line_that_does_not_fit_its_record_takes_no_other_line_with_it(tmp_path: Path) -> None:
    body = """
    if r["type"] == "get_last_assistant_text":
        update = dict(type="message_update", assistantMessageEvent=None)
        odd = dict(type="message_end", runId="1", message=dict(role="assistant", usage=dict(input={})))
        end = dict(type="response", id=r["id"], success=True, data=dict(text="here"))
        sys.stdout.write("".join(json.dumps(one) + chr(10) for one in (update, odd, end)))
        sys.stdout.flush()
    """
    async with start_stand_in(tmp_path, body, timeout=30) as client:
        assert (await client.get_last_assistant_text()).text == "here"


async def test_an_answer_that_does_not_come_in_time_is_an_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    body = 'answer(r, data=dict(text="here")) if r["type"] == "get_last_assistant_text" else None'
    async with start_stand_in(tmp_path, body, timeout=2) as client:
        with pytest.raises(pigeon.AnswerTimeout, match=r'"get_state" within 2 s'):
            await client.get_state()
        # On a busy machine the peer itself may need longer than that.
        for _ in range(100):
            with suppress(pigeon.AnswerTimeout):
                assert (await client.get_last_assistant_text()).text == "here"
                return
        raise AssertionError("no answer came")


async def test_lines_of_any_length_are_read(tmp_path: Path) -> None:
    body = 'answer(r, data=dict(text="x" * 40_000_000)) if r["type"] == "get_last_assistant_text" else None'
    async with start_stand_in(tmp_path, body) as client:
        assert len((await client.get_last_assistant_text()).text or "") == 40_000_000


async def test_what_is_no_record_is_an_unknown_event_and_fails_nothing(tmp_path: Path) -> None:
    body = """
    if r["type"] == "get_last_assistant_text":
        print("a debugger says hello")
        say(type="weather", sun=True)
        say(type="agent_settled", aborted=False, reason="hail", wind=5)
        say(type="message_end", message=dict(role="oracle", content="?"))
        say(type="extension_ui_request", method="hologram", id="1")
        say(no="type")
        print("[1, 2]")
        answer(r, data=dict(text=None), extra=1)
    """
    async with start_stand_in(tmp_path, body) as client:
        events = client.events()
        assert (await client.get_last_assistant_text()).text is None
        heard = [await anext(events) for _ in range(7)]
        assert heard[0] == pigeon.UnknownEvent("", {"line": "a debugger says hello"})
        assert heard[1] == pigeon.UnknownEvent("weather", {"type": "weather", "sun": True})
        assert isinstance(heard[2], pigeon.AgentSettled)
        assert str(heard[2].reason) == "hail"
        assert isinstance(heard[3], pigeon.MessageEnd)
        assert isinstance(heard[4], pigeon.UnknownEvent)


async def test_death_is_noticed_although_a_child_holds_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pigeon.system.process import peer

    monkeypatch.setattr(peer, "AFTER_EXIT_SECONDS", 0.05)
    pid_file = tmp_path / "pid"
    body = f"""
    if r["type"] == "get_state":
        import subprocess
        child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
        open({str(pid_file)!r}, "w").write(str(child.pid))
        os._exit(3)
    """
    async with start_stand_in(tmp_path, body) as client:
        with pytest.raises(pigeon.ProcessDied, match="exit code 3"):
            await client.get_state()
    os.kill(int(pid_file.read_text()), signal.SIGKILL)


async def test_a_socket_of_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pigeon.sdk.remote import transports

    monkeypatch.setattr(transports, "user_of", lambda connection: os.geteuid() + 1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with pytest.raises(pigeon.StartupError, match="another user's"):
            await pigeon.Client(url=f"unix:{tmp_path}/socket").open()


async def test_a_clean_stop_closes_the_input_and_waits(tmp_path: Path) -> None:
    client = start_stand_in(tmp_path, after=f'open({str(tmp_path / "end")!r}, "w").write("clean")')
    async with client:
        pass
    assert (tmp_path / "end").read_text() == "clean"


async def test_a_process_that_ignores_the_end_of_its_input_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pigeon.sdk.remote import transports

    monkeypatch.setattr(transports, "END_SECONDS", 0.1)
    monkeypatch.setattr(transports, "TERM_SECONDS", 0.1)
    pid_file = tmp_path / "pid"
    before = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    after = f"open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    async with start_stand_in(tmp_path, before=before, after=after):
        pass
    assert eventually(lambda: not is_alive(int(pid_file.read_text())))


async def test_a_slow_reader_neither_blocks_answers_nor_fills_the_memory(tmp_path: Path) -> None:
    update = (
        'dict(type="message_update", usage=dict(cost={}), '
        'assistantMessageEvent=dict(type="text_delta", contentIndex=0, delta="x" * 10))'
    )
    body = f"""
    if r["type"] == "get_last_assistant_text":
        for _ in range(20_000): say(**{update})
        answer(r, data=dict(text="behind"))
    """
    async with start_stand_in(tmp_path, body) as client:
        events = client.events()
        assert (await client.get_last_assistant_text()).text == "behind"
        await client.close()
        deltas = [event.delta async for event in events if isinstance(event, pigeon.TextDelta)]
        assert len("".join(deltas)) == 200_000
        assert len(deltas) < 1_000


async def test_a_reader_that_does_not_read_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pigeon.sdk import reader_queue

    monkeypatch.setattr(reader_queue, "MOST_QUEUED", 1_000)
    body = """
    if r["type"] == "prompt":
        answer(r)
        for at in range(5_000): say(type="weather", at=at, map="x" * 2_000)
        say(type="agent_settled", aborted=False)
    if r["type"] == "get_state":
        answer(r, data={})
    """
    async with start_stand_in(tmp_path, body) as client:
        unread = client.events()
        assert (await client.run("go")).ended == "done"
        for at in range(1_001):
            event = await anext(unread)
            assert isinstance(event, pigeon.UnknownEvent)
            assert event.members["at"] == at
        with pytest.raises(pigeon.ReaderTooSlow):
            await anext(unread)


ORIGINAL = """
import json, sys
for line in sys.stdin:
    r = json.loads(line)
    known = r["type"] in ("get_state", "abort")
    print(json.dumps(dict(type="response", id=r["id"], command=r["type"], success=known, error="Unknown command", data={})), flush=True)
"""  # noqa: E501 - a program


async def test_restarts_at_the_same_time_come_one_after_the_other(tmp_path: Path) -> None:
    body = """
    if r["type"] == "get_state":
        answer(r, data=dict(sessionId="s"))
    """
    async with start_stand_in(tmp_path, body) as client:
        await asyncio.gather(client.restart(), client.restart())
        assert (await client.get_state()).session_id == "s"


async def test_what_an_original_would_ignore_is_refused(tmp_path: Path) -> None:
    (tmp_path / "original.py").write_text(ORIGINAL)
    async with pigeon.Client(command=[sys.executable, "-S", str(tmp_path / "original.py")]) as client:
        with pytest.raises(pigeon.Refusal, match="knows no limits"):
            await client.run("go", limits=pigeon.Limits(turns=1))
        with pytest.raises(pigeon.Refusal, match="knows no message ids"):
            await client.steer("go", message_id="a")
    for asked in ({"limits": pigeon.Limits(turns=1)}, {"permissions": {"ask": ["bash"]}}, {"unattended": True}):
        (name,) = asked
        refused = pigeon.Client(command=[sys.executable, "-S", str(tmp_path / "original.py")], **asked)
        with pytest.raises(pigeon.StartupError, match=f"not Pigeon and cannot follow {name}="):
            await refused.open()
        assert refused.pid is None


async def test_the_options_of_an_agent_are_followed_by_one_that_is_started(own: Conversations) -> None:
    own.script(call("bash", command="true"), "Done.", "Verified.")
    asked = {"permissions": {"ask": ["bash"]}, "limits": pigeon.Limits(turns=3, tool_calls=2, cost=0.5)}
    async with own.client(unattended=True, **asked) as client:
        assert (await client.get_limits()).limits == asked["limits"]
        result = await client.run("go")
        assert result.ended == "denied"
    own.script("Again.")
    async with own.client(session=result.session_file) as client:
        assert (await client.get_state()).session_id == result.session_id
        assert "scripted" in str((await client.get_state()).model)


async def test_the_options_of_an_agent_are_told_to_one_behind_a_socket(tmp_path: Path) -> None:
    made = Conversations("socket", tmp_path)
    made.script("Done.", "Done.")
    async with made.start() as client:
        before = await client.run("go")
        chosen = (await client.get_state()).model
    assert chosen is not None
    model = f"{chosen.provider}/{chosen.id}"
    asked = {"permissions": {"deny": ["bash"]}, "limits": pigeon.Limits(turns=3), "session": before.session_file}
    async with made.start(at_client={**asked, "model": model}) as client:
        assert (await client.get_limits()).limits == asked["limits"]
        assert "bash" in str(await client.get_permissions())
        state = await client.get_state()
        assert (state.session_id, state.model) == (before.session_id, chosen)
        with pytest.raises(pigeon.StartupError, match="no/such"):
            await made.start(at_client={"model": "no/such"}).open()
    made.stop()


@pytest.mark.parametrize(
    "wrong",
    [{"unattended": True}, {"model": "demo"}, {"permissions": "rules.json"}, {"cwd": "."}, {"env": {}}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_an_agent_behind_a_socket_cannot_be_told_is_said_at_once(wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        pigeon.Client(url="unix:/no/such", **wrong)


def test_a_command_where_an_address_belongs_is_told_at_once() -> None:
    with pytest.raises(TypeError, match="not list; the program to start is command="):
        pigeon.Client(["pigeon", "--mode", "rpc"])  # type: ignore[arg-type]


async def test_a_socket_is_for_our_user_alone_and_goes_with_the_first_connection(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    path = tmp_path / "socket"
    process = RpcProcess(folders, "--model", "demo", "--no-session", "--socket", str(path))
    assert eventually(path.exists)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with pigeon.Client(f"unix:{path}") as client:
        assert client.welcome is not None
        assert client.welcome.name == "pigeon"
        assert not path.exists()
    assert process.wait_exit() == 0


def test_a_socket_that_is_in_use_or_another_file_is_not_taken(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    path = tmp_path / "socket"
    path.write_text("mine")
    second = RpcProcess(folders, "--model", "demo", "--socket", str(path))
    assert second.wait_exit() == 1
    assert "it exists and is no socket" in second.stderr
    assert path.read_text() == "mine"
    path.unlink()
    first = RpcProcess(folders, "--model", "demo", "--no-session", "--socket", str(path))
    assert eventually(path.exists)
    second = RpcProcess(folders, "--model", "demo", "--socket", str(path))
    assert second.wait_exit() == 1
    assert "another process listens there" in second.stderr
    first.signal(signal.SIGTERM)
    assert first.wait_exit() == 143
    assert not path.exists()


def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    before = path.stat().st_ctime_ns
    process = RpcProcess(folders, "--model", "demo", "--no-session", "--socket", str(path))
    assert eventually(lambda: path.exists() and path.stat().st_ctime_ns != before)
    process.signal(signal.SIGTERM)
    assert process.wait_exit() == 143


@pytest.mark.parametrize("way", ["program", "socket"])
async def test_opening_ends_after_the_time_that_answers_may_take(tmp_path: Path, way: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "silent"))
        listening.listen()
        if way == "program":
            # It does not end when its input does, either.
            client = pigeon.Client(command=["sleep", "60"], timeout=0.2)
        else:
            client = pigeon.Client(url=f"unix:{tmp_path / 'silent'}", timeout=0.2)
        began = time.monotonic()
        with pytest.raises(pigeon.AnswerTimeout, match=r"within 0\.2 s"):
            await client.open()
        assert client.pid is None
        assert time.monotonic() - began < END_SECONDS
