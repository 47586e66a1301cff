"""Its own house, in the real program: while rules are in force, a model writes nothing that decides about the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders
from support.agent_process import Start
from support.contract import calls, proves, results

EVERYTHING = {"allow": ["*", "write(**)", "write(/**)", "edit(/**)"], "default": "allow"}
PLACES = [
    ".git/hooks/pre-commit", ".git/config", ".git", ".pigeon/settings.json", ".pi/extensions/x.py",
    ".agents/skills/x/SKILL.md", "~/.bashrc", "~/.config/fish/config.fish", "~/.pi/agent/settings.json",
    "~/.pi/agent/extensions/x.py", "~/.pi/agent/auth.json", "link/pre-commit", ".GIT/config",
]  # fmt: skip


def lay_out(folders: AgentFolders) -> None:
    (folders.work / ".git" / "hooks").mkdir(parents=True)
    (folders.work / ".git" / "config").write_text("[core]\n")
    (folders.work / "link").symlink_to(".git/hooks")


def content_of(folder: Path) -> dict[str, bytes]:
    """What the files of a folder hold, but for what Pigeon remembers of files to undo their changes."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if "checkpoints" not in path.parts}


@proves("permission.house")
@pytest.mark.parametrize("source", ["user", "host", "set", "mode", "project"])
def test_a_model_that_may_write_everything_writes_nothing_that_decides_about_itself(
    start: Start, folders: AgentFolders, server: ModelServer, source: str
) -> None:
    lay_out(folders)
    options: list[str] = []
    settings: dict[str, Any] = {}
    if source == "user":
        settings = {"permissions": EVERYTHING}
    elif source == "host":
        options = ["--permissions", json.dumps(EVERYTHING)]
    elif source == "mode":
        options = ["--approval-mode", "write"]
    elif source == "project":
        (folders.work / ".pi").mkdir()
        (folders.work / ".pi" / "settings.json").write_text('{"permissions": {"deny": ["bash"]}}')
        options = ["--approve"]
    host = start(*options, settings=settings)
    if source == "set":
        host.ask("set_permissions", permissions=EVERYTHING)
    before = content_of(folders.work), content_of(folders.home)
    made = [Call("write", {"path": path, "content": "evil"}) for path in PLACES]
    edit = Call("edit", {"path": ".git/config", "edits": [{"oldText": "[core]", "newText": "[evil]"}]})
    shell = Call("bash", {"command": "cd .git && echo evil > hooks/pre-push"})
    made += [edit] if source in ("mode", "project") else [edit, shell]
    for failed, text in results(host, calls(host, server, *made)):
        assert failed is True
        assert "is protected while permission rules are in force" in text
    assert (content_of(folders.work), content_of(folders.home)) == before
    assert results(host, calls(host, server, Call("write", {"path": "a", "content": "fine"})))[0][0] is False


@proves("permission.house_opened")
def test_a_rule_that_names_the_place_opens_it(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    lay_out(folders)
    rules = {"allow": ["write(.git/hooks/**)"], "ask": ["edit(.git/config)"]}
    host = start(settings={"permissions": rules})
    assert (
        results(host, calls(host, server, Call("write", {"path": ".git/hooks/pre-push", "content": "x"})))[0][0]
        is False
    )
    edit = Call("edit", {"path": ".git/config", "edits": [{"oldText": "[core]", "newText": "[user]"}]})
    server.answers(edit)
    server.answers("done")
    begun = host.mark()
    host.ask("prompt", message="x")
    request = host.wait_event("extension_ui_request", begun, method="select")
    host.send({"type": "extension_ui_response", "id": request["id"], "value": "Allow once"})
    host.wait_end(begun)
    assert (folders.work / ".git" / "config").read_text() == "[user]\n"


@proves("permission.house_no_rules")
@pytest.mark.parametrize("options", [[], ["--approval-mode", "yolo"], ["--permissions", "{}"]])
def test_without_any_rule_nothing_is_protected(
    start: Start, folders: AgentFolders, server: ModelServer, options: list[str]
) -> None:
    lay_out(folders)
    host = start(*options)
    made = [Call("write", {"path": path, "content": "x"}) for path in PLACES if path != ".git"]
    assert [failed for failed, _ in results(host, calls(host, server, *made))] == [False] * len(made)
    assert (folders.home / ".bashrc").read_text() == "x"


@proves("permission.house_options")
def test_rules_and_extensions_that_options_name_are_not_written(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    (folders.work / "rules.json").write_text(json.dumps(EVERYTHING))
    (folders.work / "own.py").write_text("from pigeon.extensions import Extension\next = Extension('own', needs=[])\n")
    host = start("--permissions", "rules.json", "-e", "own.py")
    made = [Call("write", {"path": path, "content": "{}"}) for path in ("rules.json", "own.py")]
    assert [failed for failed, _ in results(host, calls(host, server, *made))] == [True, True]


@proves("permission.house_redirection")
def test_no_way_to_a_protected_folder_hides_what_a_redirection_writes(
    start: Start, folders: AgentFolders, server: ModelServer
) -> None:
    lay_out(folders)
    host = start(settings={"permissions": {"deny": ["read(nothing)"]}})
    before = (folders.work / ".git" / "config").read_text()
    ways = (
        "(cd /); cd .git; echo x > config", "f() { echo x > config; }; cd .git; f", "A=1 cd .git; echo x > $PWD/config",
        "f() { echo x > $1; }; f .git/config", "for f in a .git/config; do echo x > $f; done",
        "echo x > ~+/.git/config", "eval 'cd .git'; echo x > config", "echo x > ${HOME:+.git/config}",
    )  # fmt: skip
    told = results(host, calls(host, server, *(Call("bash", {"command": way}) for way in ways)))
    assert [failed for failed, _ in told] == [True] * len(ways)
    assert (folders.work / ".git" / "config").read_text() == before
