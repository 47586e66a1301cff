"""`-p`: one prompt, one answer on stdout, and an exit code that says how it went."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, Gate, ModelServer, said_in
from pigeon.frontends import prompt_input
from support.agent_folders import AgentFolders, providers
from support.agent_process import ProgramResult, RunningProgram, command_line, run_pigeon

MODEL = ("--no-session", "--model", "fake/fake-1")
PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path, server: ModelServer) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure(providers(server.url), {"retry": {"enabled": False}})
    return made


def last_user_text(server: ModelServer) -> str:
    """The last thing that the user said in the last request."""
    return said_in(server.requests[-1])[-1][1]


def test_a_pipe_gets_the_answer_alone(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("Let me look.", Call("bash", {"command": "echo looked"}))
    server.answers("It is a pigeon.\n\n")
    assert run_pigeon(folders, "-p", *MODEL, "what", "is", "it?") == ProgramResult(0, "It is a pigeon.\n", "")
    assert said_in(server.requests[0])[-1][1] == "what is it?"


@pytest.mark.parametrize("words", [("--mode", "text", "hello"), ("hello",), ("--print", "hello"), ("--", "hello")])
def test_there_are_several_ways_to_ask_for_one_answer(
    folders: AgentFolders, server: ModelServer, words: tuple[str, ...]
) -> None:
    server.answers("hi")
    assert run_pigeon(folders, *MODEL, *words) == ProgramResult(0, "hi\n", "")


def test_piped_text_and_files_go_before_the_prompt_with_blank_lines_between(
    folders: AgentFolders, server: ModelServer
) -> None:
    (folders.work / "notes.md").write_text("# Notes\n")
    (folders.work / "dot.png").write_bytes(PIXEL)
    server.answers("ok")
    assert run_pigeon(folders, "-p", *MODEL, "@notes.md", "review", "@dot.png", given="+ a line\n").code == 0
    content = server.requests[-1]["messages"][-1]["content"]
    text = "".join(block.get("text", "") for block in content)
    notes, dot = (f'<file name="{folders.work}/{name}">' for name in ("notes.md", "dot.png"))
    assert text == f"+ a line\n\n{notes}\n# Notes\n</file>\n\n{dot}</file>\n\nreview"
    assert [block["type"] for block in content].count("image") == 1


@pytest.mark.parametrize("mode", ["text", "json"])
def test_a_link_to_a_file_that_the_sandbox_hides_is_refused_as_a_file_of_the_prompt(
    folders: AgentFolders, server: ModelServer, mode: str
) -> None:
    (folders.home / ".netrc").write_text("a secret")
    (folders.work / "notes.md").symlink_to(folders.home / ".netrc")
    refused = run_pigeon(folders, "--mode", mode, *MODEL, "--sandbox", "workspace", "@notes.md", "review")
    assert refused.code == 2
    assert refused.err.startswith(f"Error: @notes.md: the sandbox hides {folders.home}/.netrc")
    assert server.requests == []
    assert list(folders.temp.glob("pigeon-*")) == []


def test_piped_text_alone_is_a_prompt(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("ok")
    assert run_pigeon(folders, *MODEL, given="just this").out == "ok\n"
    assert last_user_text(server) == "just this"


def test_what_stands_behind_two_dashes_is_a_prompt_whatever_it_begins_with(
    folders: AgentFolders, server: ModelServer
) -> None:
    server.answers("ok")
    assert run_pigeon(folders, "-p", *MODEL, "--", "@somebody", "--said", "this").code == 0
    assert last_user_text(server) == "@somebody --said this"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["-p"], "Error: There is no prompt."),
        ([], "Error: There is no terminal to chat in, and no prompt."),
        (["-p", "@nowhere.txt"], "Error: @nowhere.txt: no such file or directory."),
        (["-p", "--modle", "x", "hi"], "Error: Unknown option --modle. Did you mean --model?"),
        (["-p", "-z", "hi"], "Error: Unknown option -z."),
        (["--modle", "demo", "hi"], "Error: Unknown option --modle. Did you mean --model?"),
        (["-p", "--output", "xml", "hi"], 'Error: Invalid output "xml".'),
        (["-p", "--output-schema", "nowhere.json", "hi"], "Error: --output-schema nowhere.json: No such file"),
        (["-p", "--output-schema", "{broken", "hi"], "Error: --output-schema: not valid JSON"),
        (["-p", "--output-schema", '{"type": 5}', "hi"], "Error: --output-schema: type: not a valid JSON Schema"),
        (["-p", "--output-schema", "[]", "hi"], "Error: --output-schema []: No such file"),
        (["--mode", "acp", "hi"], "Error: pigeon acp takes no prompt"),
        (["--mode", "acp", "--record", "x.recording"], "Error: --record is for one conversation"),
        (["--mode", "json"], "Error: There is no prompt."),
        (["--mode", "json", "--frobnicate", "hi"], "Error: Unknown option --frobnicate."),
        (["--mode", "json", "--output", "json", "hi"], "Error: --output needs -p"),
        (["-p", "--VERBOSE", "hi"], "Error: Unknown option --VERBOSE. Did you mean --verbose?"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(
    folders: AgentFolders, server: ModelServer, words: list[str], error: str
) -> None:
    ended = run_pigeon(folders, *MODEL, *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(error)
    assert server.requests == []


def test_json_is_one_object(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("four")
    ended = run_pigeon(folders, "-p", "--model", "fake/fake-1", "--output", "json", "two and two?")
    answer = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert {key: answer[key] for key in ("text", "output", "ended", "error")} == {
        "text": "four",
        "output": None,
        "ended": "done",
        "error": None,
    }
    assert answer["usage"]["totalTokens"] > 0
    assert answer["sessionId"] in answer["sessionFile"]
    assert os.path.exists(answer["sessionFile"])


def test_events_come_line_by_line_and_end_with_the_result(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("four")
    ended = run_pigeon(folders, "-p", *MODEL, "--output", "stream-json", "two and two?")
    lines: list[dict[str, Any]] = [json.loads(line) for line in ended.out.splitlines()]
    kinds = [line["type"] for line in lines]
    assert [kinds[0], *kinds[-2:]] == ["agent_start", "agent_settled", "result"]
    deltas = [line["assistantMessageEvent"] for line in lines if line["type"] == "message_update"]
    assert "".join(delta.get("delta", "") for delta in deltas) == "four"
    assert (lines[-1]["text"], lines[-1]["ended"], ended.code) == ("four", "done", 0)


def test_data_is_printed_as_json_where_a_schema_asks_for_it(folders: AgentFolders, server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    (folders.work / "schema.json").write_text(json.dumps(schema))
    for given in ("schema.json", json.dumps(schema)):
        server.answers('{"sum": 4}')
        ended = run_pigeon(folders, "-p", *MODEL, "--output-schema", given, "two and two?")
        assert (ended.code, json.loads(ended.out)) == (0, {"sum": 4})


@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_a_failed_run_ends_with_code_1_and_the_reason_on_stderr(
    folders: AgentFolders, server: ModelServer, output: str
) -> None:
    ended = run_pigeon(folders, "-p", *MODEL, "--output", output, "hello")
    assert ended.code == 1
    assert ended.err.startswith("Error: ")
    assert "400" in ended.err or "no answer" in ended.err.lower()
    last = ended.out.splitlines()[-1] if ended.out else ""
    assert (json.loads(last)["ended"] if last else "error") == "error"


def test_json_mode_ends_with_code_1_where_a_run_fails(folders: AgentFolders, server: ModelServer) -> None:
    ended = run_pigeon(folders, "--mode", "json", *MODEL, "first", "second")
    assert ended.code == 1
    assert ended.err.startswith("The run ended: error (")
    assert len(server.requests) == 1


def test_a_limit_ends_with_code_3_and_says_which(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("Looking.", Call("bash", {"command": "true"}))
    ended = run_pigeon(folders, "-p", *MODEL, "--max-turns", "1", "hello")
    assert (ended.code, ended.out) == (3, "Looking.\n")
    assert ended.err == "Error: Limit reached: 1 turns are allowed, 1 are used\n"


def test_what_would_be_asked_is_denied_and_ends_with_code_4(folders: AgentFolders, server: ModelServer) -> None:
    server.answers(Call("bash", {"command": "touch ran"}))
    server.answers("I may not.")
    ended = run_pigeon(folders, "-p", *MODEL, "--permissions", '{"ask": ["bash"]}', "hello")
    assert (ended.code, ended.out) == (4, "I may not.\n")
    assert ended.err.startswith(
        "Error: Not allowed: none of the last tool calls was allowed to run. The last one, bash: "
    )
    assert "Permission denied for bash: touch ran (the agent runs unattended" in ended.err
    assert "try to get around" not in ended.err
    assert not (folders.work / "ran").exists()
    assert "nobody can answer" in str(server.requests[0]["system"])


def test_a_call_that_an_extension_blocks_is_not_blamed_on_the_rules(folders: AgentFolders, server: ModelServer) -> None:
    (folders.work / "guard.py").write_text(
        "from pigeon.extensions import Block, Extension, ToolCall\n\next = Extension('guard')\n\n\n"
        "@ext.on(ToolCall)\ndef judge(event, ctx):\n    return Block('not on a Friday')\n"
    )
    server.answers(Call("bash", {"command": "touch ran"}))
    server.answers("I may not.")
    ended = run_pigeon(folders, "-p", *MODEL, "-e", "guard.py", "hello")
    assert (ended.code, ended.out) == (4, "I may not.\n")
    assert "not on a Friday" in ended.err
    assert "ermission" not in ended.err


@pytest.mark.parametrize("how", [("-p",), ("-p", "--output", "json"), ("--mode", "json")])
def test_an_answer_that_is_cut_off_is_told_on_stderr(
    folders: AgentFolders, server: ModelServer, how: tuple[str, ...]
) -> None:
    server.answers("Once upon a", stop="max_tokens")
    ended = run_pigeon(folders, *how, *MODEL, "tell me a story")
    assert ended.code == 0
    assert "Once upon a" in ended.out
    assert ended.err == "Warning: The answer was cut off: it reached the model's longest output\n"


def test_without_a_key_it_says_how_to_get_one_and_names_the_demo(folders: AgentFolders) -> None:
    (folders.agent / "models.json").unlink()
    ended = run_pigeon(folders, "-p", "hello")
    assert (ended.code, ended.out) == (1, "")
    assert "export ANTHROPIC_API_KEY" in ended.err
    assert "pigeon demo" in ended.err
    (page,) = re.findall(r"see (\S+)", ended.err)
    assert Path(page).read_text().startswith("# ")


def test_an_interrupt_aborts_the_run_and_prints_what_was_said_so_far(
    folders: AgentFolders, server: ModelServer
) -> None:
    gate = Gate()
    server.answers("Half of it", gate, " and the rest")
    calling = RunningProgram(folders, ("-p", *MODEL, "hello"))
    calling.process.stdin.close()
    gate.wait_reached()
    calling.process.send_signal(signal.SIGINT)
    ended = calling.wait_for_end()
    gate.open()
    assert (ended.code, ended.out) == (130, "Half of it\n")


@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_a_reader_that_has_seen_enough_ends_it_quietly(folders: AgentFolders, server: ModelServer, output: str) -> None:
    gate = Gate()
    server.answers("one", gate, "two")
    calling = RunningProgram(folders, ("-p", *MODEL, "--output", output, "hello"))
    calling.process.stdin.close()
    gate.wait_reached()
    calling.process.stdout.close()
    gate.open()
    assert (calling.process.wait(20), calling.errors()) == (1, "")


def test_options_of_extensions_take_their_values_and_the_rest_is_the_prompt(
    folders: AgentFolders, server: ModelServer
) -> None:
    extension = folders.work / "colours.py"
    extension.write_text(
        "from pigeon.extensions import Extension\n\next = Extension('colours')\n"
        "colour = ext.flag('colour', default='blue')\nloud = ext.flag('loud')\n"
    )
    server.answers("ok")
    ended = run_pigeon(folders, "-p", *MODEL, "-e", str(extension), "--colour", "red", "paint", "--loud", "it")
    assert ended == ProgramResult(0, "ok\n", "")
    assert last_user_text(server) == "paint it"
    assert run_pigeon(folders, "-p", *MODEL, "-e", str(extension), "-loud", "it").code == 2


@pytest.mark.parametrize("output", ["json", "stream-json"])
@pytest.mark.parametrize(
    "words", [("--model", "nobody/nothing"), ("--session", "nowhere"), ("--trace", "/nowhere/trace")]
)
def test_there_is_an_object_also_where_no_agent_can_be_started(
    folders: AgentFolders, output: str, words: tuple[str, ...]
) -> None:
    ended = run_pigeon(folders, "-p", "--output", output, *words, "hello")
    told = json.loads(ended.out)
    assert (ended.code, told["ended"], ended.err) == (1, "error", f"Error: {told['error']}\n")


@pytest.mark.parametrize(
    ("given", "error"),
    [(b"a\0b", "not text"), (PIXEL, "not text"), (b"y\n" * 11_000_000, "larger than 20 MB")],
    ids=["binary", "image", "endless"],
)
def test_what_is_piped_in_must_be_text_of_a_usable_size(folders: AgentFolders, given: bytes, error: str) -> None:
    calling = RunningProgram(folders, ("-p", *MODEL, "hello"))
    with suppress(BrokenPipeError):
        calling.process.stdin.write(given)
    ended = calling.wait_for_end()
    assert (ended.code, ended.out) == (2, "")
    assert f"Error: The piped input is {error}" in ended.err


def test_half_of_a_surrogate_pair_in_an_answer_is_replaced(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("a\ud800b")
    assert run_pigeon(folders, "-p", *MODEL, "hello") == ProgramResult(0, "a?b\n", "")


@pytest.mark.parametrize("mode", ["text", "json"])
def test_a_misspelt_option_is_told_also_where_there_is_no_prompt(folders: AgentFolders, mode: str) -> None:
    ended = run_pigeon(folders, "--mode", mode, *MODEL, "--verbsoe")
    assert (ended.code, ended.err.startswith("Error: Unknown option --verbsoe. Did you mean --verbose?")) == (2, True)


def test_a_full_disk_behind_stdout_is_told_in_a_line(folders: AgentFolders, server: ModelServer) -> None:
    server.answers("hi")
    command = [*command_line(), "-p", *MODEL, "hello"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, cwd=folders.work,
            env=folders.environment(), check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr.decode()) == (1, "Error: stdout: No space left on device\n")


def test_a_key_is_masked_in_what_is_printed(folders: AgentFolders, server: ModelServer) -> None:
    for output in ("text", "json", "stream-json"):
        server.answers("it is dummy-key-of-mine")
        ended = run_pigeon(folders, "-p", *MODEL, "--api-key", "dummy-key-of-mine", "--output", output, "which key?")
        assert "it is ***" in ended.out
        assert "dummy-key-of-mine" not in ended.out


def test_what_is_wrong_with_the_settings_is_told_once(folders: AgentFolders, server: ModelServer) -> None:
    folders.configure(providers(server.url), {"permissions": {"default": "never"}})
    server.answers("ok")
    assert run_pigeon(folders, "-p", *MODEL, "hello").err.count("permissions.default must be") == 1


def test_a_person_is_told_that_an_open_and_silent_stdin_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    original = os.dup(0)
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        os.write(writing, b"piped")
        os.close(writing)

    monkeypatch.setattr(prompt_input, "SILENT_SECONDS", 0.01)
    monkeypatch.setattr(prompt_input, "print_to_stderr", tell)
    monkeypatch.setattr("sys.stdin", open(reading, closefd=False))  # noqa: SIM115
    try:
        os.dup2(reading, 0)
        assert prompt_input.read_piped_text() == "piped"
    finally:
        os.dup2(original, 0)
        os.close(original)
        os.close(reading)
    [said] = told
    assert "waiting for the end of stdin" in said
    assert "</dev/null" in said
