"""Whatever the umask says, files with the content of conversations, or with keys, are for their owner alone: each front
end writes all that it can, and then everything that is new is looked at."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pigeon.system.private_log import PrivateLog
from pigeon.wire.errors import StartupError
from support.agent_folders import AgentFolders
from support.agent_process import command_line
from support.pigeon_serve import WAIT, AttackedServer

MUCH = "run seq 1 30000"
MODEL = ("--model", "demo")


@pytest.fixture(autouse=True)
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    (tmp_path / "out").mkdir()
    for folder, names, files in os.walk(tmp_path):
        for name in (*names, *files):
            os.chmod(os.path.join(folder, name), 0o700)
    return made


def run(folders: AgentFolders, *arguments: str, text: str = "") -> None:
    done = subprocess.run(
        [*command_line(), *arguments],
        cwd=folders.work,
        env=folders.environment(),
        input=text,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def answer(folders: AgentFolders, out: str) -> None:
    loose = Path(out) / "trace"
    loose.write_text("was here before")
    run(folders, "-p", *MODEL, "--trace", str(loose), "--record", f"{out}/record", MUCH)


def lines(folders: AgentFolders, out: str) -> None:
    run(folders, "--mode", "json", *MODEL, "--trace", f"{out}/trace", MUCH)


def protocol(folders: AgentFolders, out: str) -> None:
    prompt = json.dumps({"type": "prompt", "message": MUCH})
    run(folders, "--mode", "rpc", *MODEL, "--trace", f"{out}/trace", "--record", f"{out}/record", text=f"{prompt}\n")
    [session] = (str(path) for path in folders.agent.rglob("*.jsonl") if path.parent.parent.name == "sessions")
    run(folders, "--export", session, f"{out}/page.html")
    run(folders, "sessions", "export", session, f"{out}/trajectory.json", "--format", "atif")


def editor(folders: AgentFolders, out: str) -> None:
    with subprocess.Popen(
        [*command_line(), "acp", *MODEL],
        cwd=folders.work,
        env=folders.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as agent:

        def ask(method: str, **params: Any) -> dict[str, Any]:
            assert agent.stdin is not None
            assert agent.stdout is not None
            request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            agent.stdin.write(json.dumps(request).encode() + b"\n")
            agent.stdin.flush()
            answers = (json.loads(line) for line in agent.stdout)
            result: dict[str, Any] = next(one for one in answers if one.get("id") == method)["result"]
            return result

        ask("initialize", protocolVersion=1, clientCapabilities={})
        session = ask("session/new", cwd=str(folders.work), mcpServers=[])["sessionId"]
        ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": MUCH}])
        assert agent.stdin is not None
        agent.stdin.close()


def batch(folders: AgentFolders, out: str) -> None:
    tasks = Path(out) / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "a", "prompt": MUCH}) + "\n")
    tasks.chmod(0o600)
    run(folders, "batch", str(tasks), *MODEL, "--out", f"{out}/batch")
    run(folders, "batch", "--compare", f"{out}/batch", f"{out}/batch", "--out", f"{out}/both.html")


def server(folders: AgentFolders, out: str) -> None:
    with AttackedServer(folders.home.parent / "served") as served:
        link = served.socket_of(served.new(), "admin")
        with link:
            link.send(json.dumps({"type": "prompt", "message": MUCH}))
            while json.loads(link.recv(WAIT))["type"] != "agent_settled":
                pass


def settings(folders: AgentFolders, out: str) -> None:
    (folders.agent / "settings.json").unlink()
    run(folders, "config", "set", "defaultModel", "demo")
    run(folders, "mcp", "add", "one", "--env", "KEY=secret", "--", "echo", "hi")


@pytest.mark.parametrize("use", [answer, lines, protocol, editor, batch, server, settings])
def test_what_a_front_end_writes_is_for_its_owner_alone(
    folders: AgentFolders, use: Callable[[AgentFolders, str], None]
) -> None:
    root = folders.home.parent
    use(folders, str(root / "out"))
    found = {}
    for folder, names, files in os.walk(root):
        # A private folder closes what is in it: a workspace has the modes of what it was made from.
        names[:] = [name for name in names if name != "workspace" and is_open(folder, name, found)]
        for name in files:
            is_open(folder, name, found)
    written = {os.path.relpath(path, root): oct(mode) for path, mode in found.items() if mode & 0o077}
    assert {name: mode for name, mode in written.items() if not is_of_the_test(name)} == {}
    assert len(found) > 7, "nothing was looked at"


def is_open(folder: str, name: str, found: dict[str, int]) -> bool:
    about = os.lstat(os.path.join(folder, name))
    if not stat.S_ISLNK(about.st_mode):
        found[os.path.join(folder, name)] = stat.S_IMODE(about.st_mode)
    return True


def is_of_the_test(name: str) -> bool:
    """The folders and files that this test, or a library, has made."""
    made = {"home", "home/.pi", "home/.pi/agent", "work", "tmp", "home/.pi/serve.log"}
    made |= {"home/.pi/agent/models.json", "home/.pi/agent/settings.json"}
    of_server = name == "served" or name.removeprefix("served/") in made
    return (of_server and name.startswith("served")) or name.startswith(("home/.cache", "home/.config"))


def test_a_trace_is_a_new_file_and_not_the_content_of_an_old_one(tmp_path: Path) -> None:
    path, other = tmp_path / "trace", tmp_path / "other"
    other.write_text("the user's own")
    os.link(other, path)
    reader = path.open("rb")
    log = PrivateLog(str(path), "--trace", print)
    log.write(b"secret")
    log.close()
    assert (other.read_text(), reader.read()) == ("the user's own", b"the user's own")
    assert path.read_text() == "secret\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    reader.close()


def test_a_trace_goes_into_no_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "trace").symlink_to(tmp_path / "other")
    with pytest.raises(StartupError, match="this is a link"):
        PrivateLog(str(tmp_path / "trace"), "--trace", print)
    assert (tmp_path / "other").read_text() == "kept"
