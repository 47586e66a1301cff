"""Where keys come from without being seen, and what never shows them: the process table, tools for files, pages."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess, Start
from support.contract import proves

KEY = "sk-canary-4f9a1c77e2d05b83"


def shown_by(agent: RpcProcess, server: ModelServer, tool: str, **arguments: object) -> str:
    """What the host is told of one tool call."""
    server.answers(Call(tool, dict(arguments)))
    server.answers("done")
    ended = next(record for record in agent.run("go") if record["type"] == "tool_execution_end")
    return str(ended["result"])


@proves("secrets.process_memory")
@pytest.mark.parametrize("name", ["cmdline", "environ", "maps", "task/{pid}/cmdline", "root/proc/{pid}/environ"])
def test_no_tool_for_files_shows_what_a_process_holds(start: Start, server: ModelServer, name: str) -> None:
    agent = start("--api-key", KEY, "--tools", "read,grep,find,edit,ls", env={"ANTHROPIC_API_KEY": KEY})
    path = f"/proc/{agent.pid}/{name.format(pid=agent.pid)}"
    for tool, more in (
        ("read", {}),
        ("grep", {"pattern": "canary"}),
        ("edit", {"edits": [{"oldText": "a", "newText": "b"}]}),
    ):
        shown = shown_by(agent, server, tool, path=path, **more)
        assert "which may hold keys" in shown
        assert "canary" not in shown.replace(f"/proc/{agent.pid}", "")


@proves("secrets.process_search")
def test_a_search_from_above_does_not_show_it_either(start: Start, server: ModelServer) -> None:
    agent = start("--api-key", KEY, "--tools", "grep,find", env={"ANTHROPIC_API_KEY": KEY})
    for glob in ("environ", "cmdline"):
        found = shown_by(agent, server, "grep", pattern="canary", path=f"/proc/{agent.pid}", glob=glob)
        assert "No matches found" in found
    assert "No files found" in shown_by(agent, server, "find", pattern="cmdline", path=f"/proc/{agent.pid}")


@proves("secrets.key_file")
@pytest.mark.parametrize("text", [KEY, f"{KEY}\n", f"  {KEY}\r\nsecond line\n"])
def test_a_key_is_read_from_a_file(start: Start, server: ModelServer, tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    agent = start("--api-key-file", str(tmp_path / "key"))
    server.answers("hello")
    agent.run("hi")
    assert server.headers[-1]["x-api-key"] == KEY


@proves("secrets.key_pipe")
def test_a_key_is_read_from_a_pipe_whose_writer_comes_later(start: Start, server: ModelServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(f"{KEY}\n"))
    agent = start("--api-key-file", str(tmp_path / "pipe"))
    writer.start()
    server.answers("hello")
    agent.run("hi")
    writer.join()
    assert server.headers[-1]["x-api-key"] == KEY


@proves("secrets.key_stdin")
def test_a_key_is_the_first_line_of_stdin_and_the_protocol_follows(start: Start, server: ModelServer) -> None:
    agent = start("--api-key-file", "-")
    server.answers("hello")
    agent.write(f'{KEY}\n{{"type":"get_state","id":"1"}}\n'.encode())
    assert agent.response("1")["success"]
    agent.run("hi")
    assert server.headers[-1]["x-api-key"] == KEY


@proves("secrets.key_file_bad")
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("missing", "No such file"),
        ("empty", "no key in the first line"),
        ("folder", "directory"),
        ("json", "but it is JSON"),
        ("long", "longer than"),
    ],
)
def test_a_key_file_that_cannot_be_used_ends_the_start(start: Start, tmp_path: Path, named: str, said: str) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "json").write_text('{"type":"prompt"}')
    (tmp_path / "long").write_text("x" * 100_000)
    agent = start("--api-key-file", str(tmp_path / named))
    assert agent.wait_exit() == 1
    assert f"--api-key-file {tmp_path / named}: " in agent.stderr
    assert said in agent.stderr


@proves("secrets.hidden_process")
@pytest.mark.by_exec
def test_the_process_is_hidden_before_it_has_run_any_command(start: Start) -> None:
    agent = start(env={"ANTHROPIC_API_KEY": KEY})
    agent.ask("get_state")
    # The files of a process that is hidden belong to root; ours belong to us.
    owner = Path(f"/proc/{agent.pid}/environ").stat().st_uid
    assert owner == 0
    if os.getuid() != 0:
        with pytest.raises(PermissionError):
            Path(f"/proc/{agent.pid}/environ").read_bytes()


@proves("secrets.export_links")
def test_a_planted_link_is_not_followed_by_an_export(start: Start, server: ModelServer, tmp_path: Path) -> None:
    agent = start(keeps=True)
    server.answers("hello")
    agent.run("hi")
    session = Path(agent.ask("get_state")["sessionFile"])
    before = session.read_bytes()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    default = agent.folders.work / f"pigeon-session-{session.stem}.html"
    default.symlink_to(precious)
    assert "is a link" in agent.expect_error("export_html")
    default.unlink()
    default.symlink_to(session)
    assert "session itself" in agent.expect_error("export_html")
    default.unlink()
    default.hardlink_to(session)
    assert "session itself" in agent.expect_error("export_html")
    assert (precious.read_text(), session.read_bytes()) == ("mine", before)


@proves("secrets.export_shapes")
def test_what_looks_like_a_secret_is_in_the_session_and_not_on_its_page(start: Start, server: ModelServer) -> None:
    secret = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    agent = start(keeps=True)
    server.answers(f"```bash\nexport GITHUB_TOKEN={secret}\n```")
    agent.run("hi")
    assert secret in Path(agent.ask("get_state")["sessionFile"]).read_text()
    page = (agent.folders.work / agent.ask("export_html")["path"]).read_text()
    assert (secret in page, "ghp_***" in page) == (False, True)
