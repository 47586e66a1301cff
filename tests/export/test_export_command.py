"""`export_html` on the real program."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess
from support.browser import PageReader


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


def test_without_a_path_the_page_is_named_after_the_session_in_the_folder_of_the_process(folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("run `echo '<script>alert(1)</script>'`")
        session = Path(agent.ask("get_state")["sessionFile"])
        path = agent.ask("export_html")["path"]
    assert path == f"pigeon-session-{session.stem}.html"
    page = PageReader((folders.work / path).read_text("utf-8"))
    assert page.faults == []
    assert "<script>alert(1)</script>" in page.text
    assert str(folders.work) in page.text


def test_the_path_that_is_given_is_used_and_returned(folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("hi")
        asked = str(folders.temp / "out.html")
        assert agent.ask("export_html", outputPath=asked) == {"path": asked}
        assert agent.ask("export_html", outputPath="~/mine.html") == {"path": str(folders.home / "mine.html")}
        assert agent.ask("export_html", outputPath="here.html") == {"path": "here.html"}
    for page in (folders.temp / "out.html", folders.home / "mine.html", folders.work / "here.html"):
        assert "<!DOCTYPE html>" in page.read_text("utf-8")


def test_what_cannot_be_exported_is_refused(folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo", "--no-session") as agent:
        agent.run("hi")
        assert agent.expect_error("export_html") == "Cannot export in-memory session to HTML"
    with RpcProcess(folders, "--model", "demo") as agent:
        assert agent.expect_error("export_html") == "Nothing to export yet - start a conversation first"
        agent.run("hi")
        missing = str(folders.temp / "missing" / "x.html")
        assert agent.expect_error("export_html", outputPath=missing).startswith(
            "ENOENT: no such file or directory, open"
        )
        assert "NUL" in agent.expect_error("export_html", outputPath="a\0b")
        assert "NUL" in agent.expect_error("switch_session", sessionPath="/a\0b")
        session = agent.ask("get_state")["sessionFile"]
        before = Path(session).read_bytes()
        assert "session itself" in agent.expect_error("export_html", outputPath=session)
        assert Path(session).read_bytes() == before


def test_a_page_is_private_whatever_stood_in_its_place(folders: AgentFolders) -> None:
    planted = folders.work / "page.html"
    planted.write_text("planted")
    planted.chmod(0o666)
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("hi")
        agent.ask("export_html", outputPath="page.html")
    assert planted.stat().st_mode & 0o777 == 0o600
    assert "<!DOCTYPE html>" in planted.read_text("utf-8")


def test_the_page_carries_the_name_of_the_session(folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("hi")
        agent.ask("set_session_name", name="fix <the> parser")
        path = agent.ask("export_html")["path"]
    assert "<title>fix &lt;the&gt; parser</title>" in (folders.work / path).read_text("utf-8")
