"""An agent whose project is on another machine: every tool, rule and file of instructions asks the workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pigeon
from fakes.far_workspace import FarWorkspace
from pigeon.testing import call, scripted
from pigeon.workspaces import LocalWorkspace
from pigeon.workspaces.workspace import Workspace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "machine" / "project"
    (folder / "src").mkdir(parents=True)
    (tmp_path / "machine" / "home").mkdir()
    return folder


@pytest.fixture
def far(project: Path) -> FarWorkspace:
    return FarWorkspace(project.parent)


async def run_calls(
    workspace: Workspace, tmp_path: Path, *calls: dict[str, Any], **options: Any
) -> list[tuple[bool, str]]:
    """What each call came to: whether it failed, and its text."""
    ends: list[tuple[bool, str]] = []
    options = {"builtin_tools": ["*"], "no_session": True, **options}
    with scripted(*calls, "done") as model:
        async with pigeon.Agent(
            model=model, workspace=workspace, agent_dir=tmp_path / "agent", env=variables(tmp_path), **options
        ) as agent:
            async for event in agent.prompt("go"):
                if isinstance(event, pigeon.ToolExecutionEnd):
                    ends.append((event.is_error, "\n".join(block.text for block in event.result.content)))
    return ends


def variables(tmp_path: Path) -> Mapping[str, str]:
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}


async def test_every_tool_works_there(far: FarWorkspace, project: Path, tmp_path: Path) -> None:
    ends = await run_calls(
        far,
        tmp_path,
        call("write", path="src/new/a.txt", content="one\ntwo\n"),
        call("read", path="src/new/a.txt"),
        call("edit", path="/far-away/project/src/new/a.txt", edits=[{"oldText": "two", "newText": "2"}]),
        call("ls", path="src"),
        call("grep", pattern="^2$"),
        call("find", pattern="*.txt"),
        call("bash", command="cat src/new/a.txt; pwd; cat", timeout=20),
    )
    assert ends[:6] == [
        (False, "Successfully wrote to src/new/a.txt"),
        (False, "one\ntwo\n"),
        (False, "Successfully replaced 1 block(s) in /far-away/project/src/new/a.txt."),
        (False, "new/"),
        (False, "src/new/a.txt:2: 2"),
        (False, "src/new/a.txt"),
    ]
    assert ends[6] == (False, f"one\n2\n{far.find_real_folder()}\n")
    assert (project / "src/new/a.txt").read_text() == "one\n2\n"


async def test_a_tool_call_takes_at_most_two_round_trips(far: FarWorkspace, project: Path, tmp_path: Path) -> None:
    (project / "a.txt").write_text("one\n")
    before: list[str] = []
    for tool, arguments, trips in (
        ("read", {"path": "a.txt"}, ["look"]),
        ("write", {"path": "b.txt", "content": "x"}, ["look", "write"]),
        ("edit", {"path": "a.txt", "edits": [{"oldText": "one", "newText": "1"}]}, ["look", "write"]),
        ("ls", {}, ["look", "list"]),
        ("grep", {"pattern": "x"}, ["look", "search"]),
        ("find", {"pattern": "*"}, ["look", "search"]),
        ("bash", {"command": "true"}, ["run"]),
    ):
        with scripted(call(tool, **arguments), "done") as model:
            async with pigeon.Agent(
                model=model, workspace=far, agent_dir=tmp_path / "agent", builtin_tools=["*"], env=variables(tmp_path)
            ) as agent:
                before[:] = far.trips
                await agent.run("go")
                assert far.trips[len(before) :] == trips, tool


@pytest.mark.leaves_running
async def test_failures_name_the_machine(far: FarWorkspace, project: Path, tmp_path: Path) -> None:
    (project / "folder").mkdir()
    ends = await run_calls(
        far,
        tmp_path,
        call("read", path="gone.txt"),
        call("read", path="folder"),
        call("edit", path="gone.txt", edits=[{"oldText": "a", "newText": "b"}]),
        call("ls", path="gone"),
        call("grep", pattern="(", path="folder"),
        call("find", pattern="*", path="gone"),
        call("bash", command="exit 3"),
        call("bash", command="tail -f /dev/null", timeout=0.2),
        call("unknown"),
    )
    assert all(failed and "far" in text for failed, text in ends), ends
    assert ends[0][1] == "ENOENT: no such file or directory, access '/far-away/project/gone.txt'"
    assert ends[6][1] == "(no output)\n\nCommand exited with code 3\n[on far]"


async def test_a_link_that_was_made_after_the_decision_is_not_followed(
    far: FarWorkspace, project: Path, tmp_path: Path
) -> None:
    (project / "real").mkdir()
    (tmp_path / "outside").mkdir()

    class Racing(FarWorkspace):
        async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> Any:
            (project / "real").rename(project / "moved")
            (project / "real").symlink_to(tmp_path / "outside")
            return await super().write(path, data, unchanged=unchanged)

    ends = await run_calls(Racing(project.parent), tmp_path, call("write", path="real/a.txt", content="x"))
    assert ends[0][0]
    assert list((tmp_path / "outside").iterdir()) == []


async def test_an_edit_does_not_overwrite_what_has_changed_since_it_was_read(project: Path, tmp_path: Path) -> None:
    (project / "a.txt").write_text("one\n")

    class Changing(FarWorkspace):
        async def write(self, path: str, data: bytes, *, unchanged: str | None = None) -> Any:
            (project / "a.txt").write_text("somebody's work\n")
            return await super().write(path, data, unchanged=unchanged)

    edit = call("edit", path="a.txt", edits=[{"oldText": "one", "newText": "1"}])
    ends = await run_calls(Changing(project.parent), tmp_path, edit)
    assert ends[0][0]
    assert "has changed" in ends[0][1]
    assert (project / "a.txt").read_text() == "somebody's work\n"


async def test_rules_are_about_the_real_places_there(far: FarWorkspace, project: Path, tmp_path: Path) -> None:
    (project / "secret.txt").write_text("key")
    (project / "alias.txt").symlink_to("secret.txt")
    (project / "plain.txt").write_text("key")
    ends = await run_calls(
        far,
        tmp_path,
        call("read", path="secret.txt"),
        call("read", path="alias.txt"),
        call("read", path="src/../secret.txt"),
        call("bash", command="cat < alias.txt"),
        call("grep", pattern="key"),
        call("read", path="plain.txt"),
        permissions={"deny": ["read(secret.txt)"]},
        unattended=True,
    )
    assert [failed for failed, _ in ends] == [True, True, True, True, False, False]
    assert ends[4][1] == "plain.txt:1: key"


async def test_protected_places_are_those_of_the_machine(far: FarWorkspace, project: Path, tmp_path: Path) -> None:
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / ".git" / "config").write_text("[core]\n\thooksPath = ../tools\n")
    (project / "tools").mkdir()
    (project / "hooks").symlink_to(".git/hooks")
    os.link(project / ".git" / "config", project / "config.txt")
    ends = await run_calls(
        far,
        tmp_path,
        call("write", path="hooks/pre-commit", content="evil"),
        call("write", path="config.txt", content="evil"),
        call("write", path="~/.bashrc", content="evil"),
        call("write", path="/far-away/home/.ssh/authorized_keys", content="evil"),
        call("bash", command="echo evil > .git/hooks/pre-commit"),
        call("write", path="src/fine.txt", content="fine"),
        permissions={"allow": ["write", "bash"]},
        unattended=True,
    )
    assert [failed for failed, _ in ends] == [True, True, True, True, True, False], ends
    assert not list((project / ".git" / "hooks").iterdir())


async def test_the_prompt_has_the_folder_and_the_notes_of_the_project_there(
    far: FarWorkspace, project: Path, tmp_path: Path
) -> None:
    (project / "AGENTS.md").write_text("Use tabs there.")
    (project.parent / "AGENTS.md").write_text("The machine is slow.")
    skill = project / ".pi" / "skills" / "deploy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: deploy\ndescription: How to deploy\n---\nRun ./deploy.\n")
    (project / ".pi" / "prompts").mkdir()
    (project / ".pi" / "prompts" / "hi.md").write_text("Say hi to $1.")
    with scripted("done", "done") as model:
        async with pigeon.Agent(
            model=model, workspace=far, agent_dir=tmp_path / "agent", trust_project=True, env=variables(tmp_path)
        ) as agent:
            commands = {command.name for command in (await agent.get_commands()).commands}
            await agent.run("/hi Ada")
            assert agent._built is not None
            prompt = agent._built.session.system_prompt.text()
            texts = [str(message) for message in (await agent.get_messages()).messages]
    assert {"hi", "skill:deploy"} <= commands
    assert any("Say hi to Ada." in text for text in texts)
    for told in ("Use tabs there.", "The machine is slow.", "/far-away/project", "How to deploy"):
        assert told in prompt


async def test_a_decision_about_a_path_here_does_not_count_there(
    far: FarWorkspace, project: Path, tmp_path: Path
) -> None:
    (project / ".pi" / "prompts").mkdir(parents=True)
    (project / ".pi" / "prompts" / "hi.md").write_text("Hi.")
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "trust.json").write_text('{"/far-away/project": true, "/far-away": true}')
    options: dict[str, Any] = {"workspace": far, "agent_dir": tmp_path / "agent", "env": variables(tmp_path)}
    async with pigeon.Agent(model="demo", **options) as agent:
        assert not (await agent.get_trust()).trusted
        assert (await agent.set_trust(trusted=True, remember=True)).remembered
    async with pigeon.Agent(model="demo", **options) as agent:
        assert (await agent.get_trust()).trusted


async def test_the_state_names_the_workspace(far: FarWorkspace, project: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"agent_dir": tmp_path / "agent", "env": variables(tmp_path)}
    async with pigeon.Agent(model="demo", workspace=far, **options) as agent:
        state = (await agent.get_state()).workspace
        assert (state.kind, state.name, state.path) == ("object", "far", "/far-away/project")
    async with pigeon.Agent(model="demo", workspace=LocalWorkspace(project), **options) as agent:
        assert (await agent.get_state()).workspace.kind == "local"


async def test_the_full_output_of_a_command_is_kept_here_and_can_be_read(far: FarWorkspace, tmp_path: Path) -> None:
    with scripted(call("bash", command="seq 1 9000"), "done") as model:
        async with pigeon.Agent(
            model=model, workspace=far, agent_dir=tmp_path / "agent", env=variables(tmp_path)
        ) as agent:
            await agent.run("go")
            session = (await agent.get_state()).session_file
            messages = (await agent.get_messages()).messages
    path = next(
        message.details["fullOutputPath"] for message in messages if getattr(message, "tool_name", "") == "bash"
    )
    with scripted(call("read", path=path, offset=8999), "done") as model:
        async with pigeon.Agent(
            model=model, workspace=far, session=session, agent_dir=tmp_path / "agent", env=variables(tmp_path)
        ) as agent:
            result = await agent.run("again")
            texts = [str(message) for message in (await agent.get_messages()).messages]
    assert result.text == "done"
    assert any("8999\\n9000" in text for text in texts)


async def test_a_conversation_there_is_not_opened_by_an_agent_here(far: FarWorkspace, tmp_path: Path) -> None:
    options: dict[str, Any] = {"agent_dir": tmp_path / "agent", "env": variables(tmp_path)}
    with scripted("done") as model:
        async with pigeon.Agent(model=model, workspace=far, **options) as agent:
            await agent.run("go")
            session = (await agent.get_state()).session_file
    with pytest.raises(pigeon.StartupError, match="far"):
        async with pigeon.Agent(model="demo", session=session, **options):
            pass
    async with pigeon.Agent(model="demo", cwd=tmp_path, **options) as agent:
        with pytest.raises(pigeon.PigeonError, match="workspace"):
            await agent.switch_session(session_path=session)


async def test_a_sandbox_is_refused_where_commands_run_elsewhere(far: FarWorkspace, tmp_path: Path) -> None:
    with pytest.raises(pigeon.StartupError, match="far"):
        async with pigeon.Agent(
            model="demo", workspace=far, sandbox="workspace", agent_dir=tmp_path / "agent", env=variables(tmp_path)
        ):
            pass


class Watched(LocalWorkspace):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seen: list[str] = []

    async def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        self.seen.append(path)
        return await super().read(path, start, size)

    async def write(self, path: str, data: bytes, **options: Any) -> Any:
        self.seen.append(path)
        return await super().write(path, data.upper(), **options)


async def test_what_a_subclass_overrides_is_what_tools_use(project: Path, tmp_path: Path) -> None:
    workspace = Watched(project)
    (project / "a.txt").write_text("text")
    ends = await run_calls(workspace, tmp_path, call("read", path="a.txt"), call("write", path="b.txt", content="loud"))
    assert ends == [(False, "text"), (False, "Successfully wrote to b.txt")]
    assert (project / "b.txt").read_text() == "LOUD"
    assert str(project / "a.txt") in workspace.seen
    assert str(project / "b.txt") in workspace.seen
