"""Files and commands that the host does for the tools of the agent."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import calls, proves, results

Record = dict[str, Any]


def asked(host: RpcProcess, kind: str, start: int = 0) -> Record:
    return host.wait_event(kind, start)


def answer(host: RpcProcess, request: Record, **members: Any) -> None:
    host.send({"type": "host_service_result", "id": request["id"], **members})


@proves("host_services.files")
def test_files_of_the_workspace_are_read_and_written_by_the_host(start: Start, server: ModelServer) -> None:
    host = start()
    place = str(host.folders.work / "a.txt")
    (host.folders.work / "a.txt").write_text("disk")
    in_force = host.ask("set_host_services", readFiles=True, writeFiles=True)
    assert in_force == {
        "readFiles": True, "writeFiles": True, "runCommands": False, "tellChanges": False, "roots": [],
    }  # fmt: skip
    begun = calls(host, server, Call("edit", {"path": "a.txt", "edits": [{"oldText": "host", "newText": "new"}]}))
    request = asked(host, "host_file_read", begun)
    assert request["path"] == place
    answer(host, request, content="host\n")
    request = asked(host, "host_file_write", begun)
    assert (request["path"], request["content"]) == (place, "new\n")
    answer(host, request)
    assert results(host, begun)[0][0] is False
    assert (host.folders.work / "a.txt").read_text() == "disk"
    assert host.ask("set_host_services") == {**in_force, "readFiles": False, "writeFiles": False}
    begun = calls(host, server, Call("read", {"path": "a.txt"}))
    assert results(host, begun) == [(False, "disk")]


@proves("host_services.refused")
def test_a_host_that_refuses_to_read_leaves_it_to_the_disk_and_one_that_refuses_to_write_is_obeyed(
    start: Start, server: ModelServer
) -> None:
    host = start()
    (host.folders.work / "a.txt").write_text("disk")
    host.ask("set_host_services", readFiles=True, writeFiles=True)
    begun = calls(host, server, Call("read", {"path": "a.txt"}), Call("write", {"path": "a.txt", "content": "x"}))
    answer(host, asked(host, "host_file_read", begun), error="not open")
    answer(host, asked(host, "host_file_write", begun), error="it is locked")
    first, second = results(host, begun)
    begun = calls(host, server, Call("read", {"path": "a.txt"}))
    answer(host, asked(host, "host_file_read", begun), error="it is too large", final=True)
    assert results(host, begun) == [(True, "it is too large")]
    assert first == (False, "disk")
    assert second[0] is True
    assert "it is locked" in second[1]


@proves("host_services.roots")
def test_only_files_of_the_named_folders_are_the_hosts(start: Start, server: ModelServer) -> None:
    host = start()
    (host.folders.work / "a.txt").write_text("disk")
    other = host.folders.temp / "b.txt"
    other.write_text("other")
    assert "absolute" in host.expect_error("set_host_services", readFiles=True, roots=["here"])
    host.ask("set_host_services", readFiles=True, roots=[str(host.folders.temp)])
    begun = calls(host, server, Call("read", {"path": "a.txt"}), Call("read", {"path": str(other)}))
    request = asked(host, "host_file_read", begun)
    assert request["path"] == str(other)
    answer(host, request, content="at the host")
    assert results(host, begun) == [(False, "disk"), (False, "at the host")]


@proves("host_services.commands")
@pytest.mark.parametrize(("members", "is_error", "words"), [
    ({"output": "hello\n", "exitCode": 0}, False, "hello"),
    ({"output": "oh\n", "exitCode": 4}, True, "code 4"),
    ({"error": "no terminal"}, True, "no terminal"),
])  # fmt: skip
def test_commands_run_at_the_host(
    start: Start, server: ModelServer, members: Record, is_error: bool, words: str
) -> None:
    host = start()
    host.ask("set_host_services", runCommands=True)
    begun = calls(host, server, Call("bash", {"command": "make"}))
    request = asked(host, "host_command_run", begun)
    assert request["command"][1:] == ["-c", "make"]
    assert request["cwd"] == str(host.folders.work)
    answer(host, request, **members)
    [(failed, text)] = results(host, begun)
    assert failed is is_error
    assert words in text


@proves("host_services.stop")
def test_a_command_that_must_stop_is_cancelled_and_its_output_kept(start: Start, server: ModelServer) -> None:
    host = start()
    host.ask("set_host_services", runCommands=True)
    begun = calls(host, server, Call("bash", {"command": "serve", "timeout": 0.1}))
    request = asked(host, "host_command_run", begun)
    assert asked(host, "host_service_cancel", begun)["targetId"] == request["id"]
    answer(host, request, output="so far", exitCode=None)
    [(failed, text)] = results(host, begun)
    assert failed
    assert "so far" in text
    assert "timed out" in text


@proves("host_services.changes")
def test_changes_of_files_are_told_to_a_host_that_asked(start: Start, server: ModelServer) -> None:
    host = start()
    write = Call("write", {"path": "a.txt", "content": "one\n"})
    begun = calls(host, server, write)
    results(host, begun)
    assert not host.since(begun, "file_changed")
    host.ask("set_host_services", tellChanges=True)
    edit = Call("edit", {"path": "a.txt", "edits": [{"oldText": "one", "newText": "two"}]})
    begun = calls(host, server, edit, Call("write", {"path": "b.txt", "content": "new"}))
    results(host, begun)
    told = [{name: value for name, value in one.items() if name != "toolCallId"}
            for one in host.since(begun, "file_changed")]  # fmt: skip
    work = host.folders.work
    assert told == [
        {"type": "file_changed", "path": str(work / "a.txt"), "created": False, "oldText": "one\n", "newText": "two\n"},
        {"type": "file_changed", "path": str(work / "b.txt"), "created": True, "newText": "new"},
    ]


@proves("host_services.giant")
def test_an_answer_that_is_too_long_fails_its_own_call(start: Start, server: ModelServer) -> None:
    host = start("--record-cap", "4096")
    for name in ("a.txt", "b.txt"):
        (host.folders.work / name).write_text("disk")
    host.ask("set_host_services", readFiles=True)
    begun = calls(host, server, Call("read", {"path": "a.txt"}), Call("read", {"path": "b.txt"}))
    first = host.wait_event("host_file_read", begun, path=str(host.folders.work / "a.txt"))
    second = host.wait_event("host_file_read", begun, path=str(host.folders.work / "b.txt"))
    host.send({"type": "host_service_result", "content": "x" * 5000, "id": second["id"]})
    answer(host, first, content="host")
    (failed, text), (also_failed, why) = results(host, begun)
    assert (failed, text, also_failed) == (False, "host", True)
    assert "longer than 4096 bytes" in why


@proves("host_services.gone")
def test_a_host_that_goes_fails_what_waits_for_it(start: Start, server: ModelServer) -> None:
    host = start("--drain")
    host.ask("set_host_services", readFiles=True)
    mark = calls(host, server, Call("read", {"path": "a.txt"}))
    asked(host, "host_file_read", mark)
    host.close_stdin()
    assert host.wait_exit() == 0
    [end] = host.since(mark, "tool_execution_end")
    assert end["isError"] is True
    assert "gone" in end["result"]["content"][0]["text"]
