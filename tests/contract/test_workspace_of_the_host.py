"""A workspace that is the host's: every file, search and command is asked of it."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import calls, proves, results

Record = dict[str, Any]
EVERYTHING = {
    **dict.fromkeys(("readFiles", "writeFiles", "runCommands", "bytes", "stat", "list", "search"), True),
}


class Machine:
    """The other machine: a folder of the test under the path `/there`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[Record] = []
        self._is_over = threading.Event()

    def serve(self, host: RpcProcess) -> None:
        """Answer the requests of the agent until the test ends."""
        at = 0
        while not self._is_over.wait(0.005):
            for record in host.since(at):
                at += 1
                handler = getattr(self, f"on_{record.get('type')}", None)
                if handler is not None:
                    self.asked.append(record)
                    try:
                        answer = handler(record)
                    except OSError as error:
                        answer = {"error": str(error), "final": True}
                    host.send({"type": "host_service_result", "id": record["id"], **answer})

    def end(self) -> None:
        self._is_over.set()

    def place(self, path: str) -> Path:
        assert path == "/there" or path.startswith("/there/") or not os.path.exists(path), path
        return Path(str(self.root) + path.removeprefix("/there")) if path.startswith("/there") else self.root / "none"

    def on_host_file_read(self, request: Record) -> Record:
        data = self.place(request["path"]).read_bytes()
        return {"data": base64.b64encode(data).decode()} if request.get("encoding") else {"content": data.decode()}

    def on_host_file_write(self, request: Record) -> Record:
        data = request["content"].encode() if "content" in request else base64.b64decode(request["data"])
        path = self.place(request["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"version": "written"}

    def on_host_file_stat(self, request: Record) -> Record:
        if request["path"] == "/":
            return {"stat": {"kind": "folder", "size": 0, "mode": 0o755, "mtimeMs": 0, "version": "/"}}
        return {"stat": describe(self.place(request["path"]), request["follow"])}

    def on_host_file_list(self, request: Record) -> Record:
        folder = self.place(request["path"])
        return {"entries": [{"name": name, **describe(folder / name, False)} for name in os.listdir(folder)]}

    def on_host_search(self, request: Record) -> Record:
        folder = self.place(request["path"])
        if request["what"] == "files":
            found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob(request["pattern"]))
            return {"paths": found}
        matches = [
            {"path": path.relative_to(folder).as_posix(), "line": number, "text": line}
            for path in sorted(folder.rglob("*.txt"))
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if request["pattern"] in line
        ]
        return {"matches": matches}

    def on_host_command_run(self, request: Record) -> Record:
        ran = subprocess.run(
            request["command"], cwd=self.place(request["cwd"]), capture_output=True, text=True, check=False, timeout=30
        )
        return {"output": ran.stdout + ran.stderr, "exitCode": ran.returncode}


def describe(path: Path, follow: bool) -> Record:
    try:
        found = path.stat() if follow else path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "missing", "size": 0, "mode": 0, "mtimeMs": 0, "version": "missing"}
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    described = {
        "kind": kinds.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "mode": stat.S_IMODE(found.st_mode),
        "mtimeMs": found.st_mtime_ns / 1e6,
        "version": f"{found.st_mtime_ns}-{found.st_size}",
    }
    return {**described, "target": os.readlink(path)} if path.is_symlink() and not follow else described


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "there" / "app").mkdir(parents=True)
    made = Machine(tmp_path / "there")
    yield made
    made.end()


def begin(start: Start, machine: Machine, *options: str) -> RpcProcess:
    host = start("--workspace", "host:/there/app", "--tools", "*", *options)
    threading.Thread(target=machine.serve, args=(host,), daemon=True).start()
    assert host.ask("get_state")["workspace"] == {
        "kind": "host", "name": "host", "path": "/there/app", "url": "host:/there/app",
    }  # fmt: skip
    in_force = host.ask("set_host_services", **EVERYTHING)
    assert {**in_force, "roots": []} == {**EVERYTHING, "tellChanges": False, "roots": []}
    return host


@proves("host_services.workspace")
def test_all_files_and_commands_are_those_of_the_host(start: Start, server: ModelServer, machine: Machine) -> None:
    app = machine.root / "app"
    (app / "a.txt").write_text("one\ntwo\n")
    (app / "link.txt").symlink_to("a.txt")
    host = begin(start, machine)
    begun = calls(
        host,
        server,
        Call("read", {"path": "link.txt"}),
        Call("edit", {"path": "a.txt", "edits": [{"oldText": "two", "newText": "2"}]}),
        Call("write", {"path": "new/b.txt", "content": "two"}),
        Call("ls", {}),
        Call("grep", {"pattern": "two"}),
        Call("find", {"pattern": "*.txt"}),
        Call("bash", {"command": "cat a.txt; exit 3"}),
        Call("read", {"path": "gone.txt"}),
    )
    ends = results(host, begun)
    assert ends[0] == (False, "one\ntwo\n")
    assert [failed for failed, _ in ends] == [False] * 6 + [True, True]
    assert ends[3] == (False, "a.txt\nlink.txt\nnew/")
    assert ends[4] == (False, "new/b.txt:1: two")
    assert ends[5] == (False, "a.txt\nlink.txt\nnew/b.txt")
    assert "one\n2\n" in ends[6][1]
    assert "host" in ends[6][1]
    assert "ENOENT" in ends[7][1]
    assert (app / "a.txt").read_text() == "one\n2\n"


@proves("host_services.project")
def test_the_notes_of_the_project_are_read_before_the_first_prompt(
    start: Start, server: ModelServer, machine: Machine
) -> None:
    (machine.root / "app" / "AGENTS.md").write_text("Use tabs there.")
    host = begin(start, machine)
    server.answers("done")
    host.run("x")
    assert "Use tabs there." in str(server.requests[-1])


@proves("host_services.bytes")
def test_files_that_are_no_text_arrive_as_they_are(start: Start, server: ModelServer, machine: Machine) -> None:
    (machine.root / "app" / "odd.txt").write_bytes(b"caf\xe9\n")
    host = begin(start, machine)
    begun = calls(host, server, Call("read", {"path": "odd.txt"}))
    assert results(host, begun) == [(False, "caf\ufffd\n")]
    assert any(request.get("encoding") == "base64" for request in machine.asked)
