"""What options and settings make of the sandbox: who may say what, and what ends the start."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import pigeon
from pigeon.app.options import AgentOptions
from pigeon.app.sandbox import make_sandbox
from pigeon.config.layers import Layers
from pigeon.sandbox.control import _own_code_folders
from pigeon.system.environment import Environment
from pigeon.system.process.run_program import run_program
from pigeon.system.process.start import ProcessOwner
from pigeon.wire.base import ABSENT
from pigeon.wire.errors import Refusal, StartupError
from support.in_process_agent import InProcessAgent, bash

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls of Linux")


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[InProcessAgent]:
    made = InProcessAgent(tmp_path)
    made.configure()
    yield made
    if made.is_running:
        await made.stop()


def project_says(agent: InProcessAgent, sandbox: Any) -> None:
    (agent.work / ".pigeon").mkdir()
    (agent.work / ".pigeon" / "settings.json").write_text(json.dumps({"sandbox": sandbox}))


def mode_of(agent: InProcessAgent) -> Any:
    state = agent.agent.session.dependencies.sandbox()
    return state if state is ABSENT else state.mode


async def test_without_a_word_there_is_no_sandbox_and_nothing_is_said(agent: InProcessAgent) -> None:
    await agent.start()
    assert agent.agent.session.dependencies.sandbox() is ABSENT


async def test_the_state_tells_what_is_in_force(agent: InProcessAgent) -> None:
    (agent.home / "cache").mkdir()
    agent.configure({"sandbox": {"mode": "read-only", "writable": ["~/cache"], "hostShell": "outside"}})
    await agent.start(sandbox="workspace", sandbox_network=True)
    state = agent.agent.session.dependencies.sandbox()
    assert state is not ABSENT
    assert (state.mode, state.network, state.host_shell) == ("workspace", True, "outside")
    assert state.writable == [str(agent.work), str(agent.home / "cache")]
    assert state.builder in ("bubblewrap", "landlock")


async def test_the_setting_may_be_the_mode_alone_and_the_option_goes_before_it(agent: InProcessAgent) -> None:
    agent.configure({"sandbox": "read-only"})
    await agent.start()
    assert mode_of(agent) == "read-only"
    await agent.stop()
    await agent.start(sandbox="off")
    assert mode_of(agent) == "off"


async def test_a_trusted_project_tightens_and_never_loosens(agent: InProcessAgent) -> None:
    agent.configure({"sandbox": {"mode": "workspace", "network": True, "hostShell": "outside"}})
    project_says(agent, {"mode": "read-only", "network": False, "hostShell": "inside", "writable": ["/"]})
    await agent.start(trust_project=True)
    state = agent.agent.session.dependencies.sandbox()
    assert state is not ABSENT
    assert (state.mode, state.network, state.host_shell, state.writable) == ("read-only", False, "inside", [])
    await agent.stop()
    project_settings = agent.work / ".pigeon" / "settings.json"
    project_settings.write_text('{"sandbox": {"mode": "off", "network": true, "hostShell": "outside"}}')
    agent.configure({"sandbox": "workspace"})
    await agent.start(trust_project=True)
    state = agent.agent.session.dependencies.sandbox()
    assert state is not ABSENT
    assert (state.mode, state.network, state.host_shell) == ("workspace", False, "inside")


async def test_a_project_that_is_not_trusted_says_nothing(agent: InProcessAgent) -> None:
    project_says(agent, "nonsense")
    await agent.start(trust_project=False)
    assert agent.agent.session.dependencies.sandbox() is ABSENT


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("workspce", "sandbox.mode must be one of off, workspace, read-only"),
        (["workspace"], "sandbox must be an object"),
        ({"mode": "workspace", "netwrok": True}, "sandbox.netwrok is unknown"),
        ({"mode": "workspace", "network": "no"}, "sandbox.network must be true or false"),
        ({"mode": "workspace", "writable": "~/x"}, "sandbox.writable must be a list"),
        ({"mode": "workspace", "writable": ["/no/such/folder"]}, "/no/such/folder is not a folder"),
        ({"mode": "workspace", "writable": ["~"]}, "contains the home folder"),
        ({"mode": "workspace", "writable": ["/"]}, "contains the home folder"),
        ({"mode": "workspace", "passVariables": "TOKEN"}, "sandbox.passVariables must be a list"),
        ({"mode": "workspace", "hostShell": "out"}, "sandbox.hostShell must be one of"),
    ],
)
async def test_settings_without_sense_end_the_start(agent: InProcessAgent, setting: Any, said: str) -> None:
    agent.configure({"sandbox": setting})
    with pytest.raises(StartupError, match=said):
        await agent.start()


async def test_a_wrong_setting_of_a_trusted_project_ends_the_start(agent: InProcessAgent) -> None:
    project_says(agent, {"mode": "strict"})
    with pytest.raises(StartupError, match=r"settings\.json: sandbox\.mode must be one of"):
        await agent.start(trust_project=True)


@pytest.mark.parametrize("folder", ["home", ".", "home/.ssh/project", "/dev", "/sys"])
async def test_a_folder_that_cannot_be_a_working_folder_ends_the_start(agent: InProcessAgent, folder: str) -> None:
    cwd = agent.root / folder
    cwd.mkdir(parents=True, exist_ok=True)
    with pytest.raises(StartupError, match=r"contains the home folder|is hidden from commands|belongs to the kernel"):
        await agent.start(sandbox="workspace", cwd=str(cwd))


async def test_the_home_may_be_looked_at(agent: InProcessAgent) -> None:
    await agent.start(sandbox="read-only", cwd=str(agent.home))
    assert mode_of(agent) == "read-only"


async def test_a_folder_of_git_that_is_a_link_ends_the_start(agent: InProcessAgent) -> None:
    os.symlink(agent.home, agent.work / ".git")
    with pytest.raises(StartupError, match=r"\.git is a link"):
        await agent.start(sandbox="workspace")


async def test_a_wall_that_cannot_be_had_ends_the_start_and_says_what_to_install(
    agent: InProcessAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = agent.root / "bin"
    broken.mkdir()
    (broken / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no permissions' >&2\nexit 1\n")
    (broken / "bwrap").chmod(0o755)
    agent.configure(PATH=str(broken))
    monkeypatch.setattr("pigeon.sandbox.wall.build_filter_for", lambda machine: None if agent.is_running else b"x")
    with pytest.raises(StartupError) as failure:
        await agent.start(sandbox="workspace")
    text = str(failure.value)
    assert "nothing was started" in text
    assert "bubblewrap: bwrap: no permissions" in text
    assert "landlock: " in text
    assert "--sandbox off" in text


async def test_a_system_without_a_builder_ends_the_start(
    agent: InProcessAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(StartupError, match="not available on this system, only on Linux"):
        await agent.start(sandbox="workspace")


async def test_without_bubblewrap_the_other_builder_is_used(agent: InProcessAgent) -> None:
    agent.configure(PATH="/nowhere")
    await agent.start(sandbox="workspace")
    state = agent.agent.session.dependencies.sandbox()
    assert state is not ABSENT
    assert state.builder == "landlock"


async def test_the_other_builder_is_used_where_much_has_to_be_mounted(
    agent: InProcessAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pigeon.sandbox.control.MANY_MOUNTS", 1)
    await agent.start(sandbox="workspace")
    state = agent.agent.session.dependencies.sandbox()
    assert state is not ABSENT
    assert state.builder == "landlock"


async def test_bubblewrap_that_does_not_work_is_passed_over(agent: InProcessAgent) -> None:
    broken = agent.root / "bin"
    broken.mkdir()
    shutil.copy("/bin/false", broken / "bwrap")
    agent.configure(PATH=str(broken))
    await agent.start(sandbox="workspace")
    state = agent.agent.session.dependencies.sandbox()
    assert state is not ABSENT
    assert state.builder == "landlock"


async def test_commands_key_commands_and_the_host_are_behind_the_wall(agent: InProcessAgent) -> None:
    target = agent.home / "written"
    agent.configure(replies=[bash(f"touch {target}; touch inside"), "Done."])
    built = await agent.start(sandbox="workspace")
    await agent.prompt("go")
    answer = await built.session.shell.run(f"touch {target}; echo $PIGEON_SANDBOX", False, 1)
    assert answer.output.endswith("workspace\n")
    assert not target.exists()
    assert (agent.work / "inside").exists()


async def test_the_host_runs_its_own_commands_outside_if_the_user_says_so(agent: InProcessAgent) -> None:
    target = agent.home / "written"
    agent.configure({"sandbox": {"mode": "workspace", "hostShell": "outside"}})
    built = await agent.start()
    await built.session.shell.run(f"touch {target}", False, 1)
    assert target.exists()


async def test_the_conversation_does_not_move_to_a_folder_that_cannot_be_protected(agent: InProcessAgent) -> None:
    built = await agent.start(sandbox="workspace")
    with pytest.raises(Refusal, match="contains the home folder"):
        await built.session.dependencies.trust.resolve_trust(str(agent.home))


async def test_a_project_that_is_trusted_while_the_agent_runs_tightens_at_once(agent: InProcessAgent) -> None:
    project_says(agent, "read-only")
    agent.configure(replies=[bash("touch new"), "Done."])
    built = await agent.start()
    built.session.dependencies.trust.set_decision(True, False)
    assert mode_of(agent) == "read-only"
    await agent.prompt("go")
    assert not (agent.work / "new").exists()
    assert "may be why" in agent.results()[0]


@pytest.mark.parametrize("many_mounts", [1, 1000], ids=["landlock", "the usual builder"])
async def test_the_agents_folder_is_kept_in_a_working_folder_too(
    agent: InProcessAgent, monkeypatch: pytest.MonkeyPatch, many_mounts: int
) -> None:
    monkeypatch.setattr("pigeon.sandbox.control.MANY_MOUNTS", many_mounts)
    named = agent.work / "extension.py"
    named.write_text("def setup(ext):\n    pass\n")
    agent.agent_dir = agent.work / "agent"
    agent.agent_dir.mkdir()
    agent.configure(replies=[bash("echo x >> agent/settings.json; echo x >> extension.py"), "Done."])
    await agent.start(sandbox="workspace", extensions=(str(named),))
    await agent.prompt("go")
    assert agent.results()[0].count("Read-only file system") == 2


async def test_the_temporary_folder_goes_with_the_agent(agent: InProcessAgent) -> None:
    agent.configure(replies=[bash("echo $TMPDIR; touch $TMPDIR/x"), "Done."])
    await agent.start(sandbox="workspace")
    await agent.prompt("go")
    folder = Path(agent.results()[0].strip())
    assert (folder / "x").exists()
    await agent.stop()
    assert not folder.parent.exists()


async def test_bubblewrap_is_not_run_from_a_folder_that_commands_of_an_earlier_session_could_write(
    agent: InProcessAgent,
) -> None:
    run = agent.root / "run"
    planted = agent.work / "bwrap"
    planted.write_text(f'#!/bin/sh\ntouch {run}\nexec {shutil.which("bwrap") or "false"} "$@"\n')
    planted.chmod(0o755)
    agent.configure(PATH=f"{agent.work}:{os.environ['PATH']}")
    await agent.start(sandbox="workspace")
    await agent.stop()
    await agent.start(sandbox="read-only")
    assert not run.exists()


async def test_an_extension_that_the_settings_name_is_kept_in_the_working_folder(agent: InProcessAgent) -> None:
    (agent.work / "own").mkdir()
    extension = agent.work / "own" / "extension.py"
    extension.write_text("def setup(pigeon):\n    pass\n")
    tries = bash("echo x >> own/extension.py; mv own other; true"), "Done."
    agent.configure({"extensions": [str(extension)]}, replies=list(tries))
    await agent.start(sandbox="workspace")
    await agent.prompt("go")
    assert "pass" in extension.read_text()
    assert not extension.read_text().endswith("x\n")


async def test_an_extension_that_the_agents_folder_has_a_link_to_is_kept_in_the_working_folder(
    agent: InProcessAgent,
) -> None:
    (agent.work / "own").mkdir()
    extension = agent.work / "own" / "extension.py"
    extension.write_text("def setup(pigeon):\n    pass\n")
    (agent.agent_dir / "extensions").mkdir()
    (agent.agent_dir / "extensions" / "linked.py").symlink_to(extension)
    agent.configure(replies=[bash("echo x >> own/extension.py; mv own other; true"), "Done."])
    await agent.start(sandbox="workspace")
    await agent.prompt("go")
    assert extension.read_text().endswith("pass\n")


@pytest.mark.parametrize("mode", ["workspace", "read-only"])
async def test_a_link_in_a_project_does_not_say_what_may_be_written(agent: InProcessAgent, mode: str) -> None:
    (agent.home / "programs").mkdir()
    (agent.work / "build").symlink_to(agent.home / "programs")
    agent.configure({"sandbox": {"mode": mode, "writable": ["build"]}})
    with pytest.raises(StartupError, match=r"leads through the link .*/work/build\. .* Name the folder itself"):
        await agent.start()


async def test_a_folder_in_that_of_the_agent_is_not_to_be_written(agent: InProcessAgent) -> None:
    (agent.agent_dir / "extensions").mkdir()
    agent.configure({"sandbox": {"mode": "read-only", "writable": [str(agent.agent_dir / "extensions")]}})
    with pytest.raises(StartupError, match=r"Pigeon itself runs from .* Leave it out of sandbox\.writable"):
        await agent.start()


async def test_a_program_that_encloses_nothing_is_not_taken_for_a_wall(agent: InProcessAgent) -> None:
    programs = agent.root / "bin"
    programs.mkdir()
    (programs / "bwrap").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    (programs / "bwrap").chmod(0o755)
    agent.configure(PATH=f"{programs}:{os.environ['PATH']}")
    await agent.start(sandbox="workspace")
    state = agent.agent.session.dependencies.sandbox()
    assert state is not ABSENT
    assert state.builder == "landlock"


async def test_a_settings_file_that_cannot_be_used_and_speaks_of_the_sandbox_ends_the_start(
    agent: InProcessAgent,
) -> None:
    settings = agent.agent_dir / "settings.json"
    settings.write_text('{"sandbox": "workspace"')
    with pytest.raises(StartupError, match=r"settings\.json cannot be used but mentions the sandbox"):
        await agent.start()
    await agent.start(sandbox="read-only")
    assert mode_of(agent) == "read-only"
    await agent.stop()
    settings.write_text('{"theme": "dark"')
    await agent.start()


async def test_with_a_settings_file_that_cannot_be_read_the_sandbox_is_the_strictest(agent: InProcessAgent) -> None:
    settings = agent.agent_dir / "settings.json"
    settings.unlink(missing_ok=True)
    for spoil in (settings.mkdir, lambda: os.symlink("nowhere", settings), lambda: os.mkfifo(settings)):
        spoil()
        await agent.start()
        state = agent.agent.session.dependencies.sandbox()
        assert state is not ABSENT
        assert (state.mode, state.network, state.writable) == ("read-only", False, [])
        await agent.stop()
        settings.rmdir() if settings.is_dir() else settings.unlink()
    settings.mkdir()
    await agent.start(sandbox="off")
    assert mode_of(agent) == "off"


async def test_commands_see_no_variables_that_look_like_secrets_unless_they_are_named(agent: InProcessAgent) -> None:
    secrets = {
        "GITHUB_TOKEN": "t-1",
        "AWS_SECRET_ACCESS_KEY": "t-2",
        "MY_DB_PASSWORD": "t-3",
        "OPAQUE": f"ghp_{'a1' * 18}",
    }
    harmless = {"TOKENIZERS_PARALLELISM": "false", "HTTPS_PROXY": "http://u:secret-1@proxy", "MONKEY": "t-4"}
    replies = [bash("env"), "Done."]
    agent.configure({"sandbox": {"mode": "workspace", "hostShell": "outside"}}, replies, **secrets, **harmless)
    built = await agent.start()
    await agent.prompt("go")
    seen = {line.partition("=")[0] for line in agent.results()[0].splitlines()}
    assert seen.isdisjoint(secrets)
    assert seen >= harmless.keys()
    outside = (await built.session.shell.run("env", False, 1)).output
    assert "GITHUB_TOKEN=t-1" in outside
    await agent.stop()
    named = {"sandbox": {"mode": "workspace", "passVariables": ["GITHUB_TOKEN"]}}
    agent.configure(named, [bash("env"), "Done."], **secrets)
    await agent.start()
    await agent.prompt("go")
    assert "GITHUB_TOKEN=t-1" in agent.results()[-1]
    assert "AWS_SECRET_ACCESS_KEY" not in agent.results()[-1]


async def test_pigeon_imports_nothing_from_folders_that_commands_can_write(agent: InProcessAgent) -> None:
    inside, kept = agent.work / "src", agent.work / "extension"
    inside.mkdir()
    kept.mkdir()
    found = [str(agent.work), "", str(inside), str(kept), str(agent.home), "/usr/lib/python3"]
    environment = Environment(variables=agent.variables, home=str(agent.home), cwd=str(agent.work), module_path=found)
    options = AgentOptions(sandbox="workspace", extensions=(str(kept),))
    layers = Layers(str(agent.agent_dir), lambda problem: None)
    setup = make_sandbox(options, environment, str(agent.agent_dir), layers, ProcessOwner())
    setup.enclose_commands(str(agent.work))
    setup.close()
    assert found == [str(kept), str(agent.home), "/usr/lib/python3"]


async def test_a_command_that_prints_keys_leaves_nothing_for_other_commands(agent: InProcessAgent) -> None:
    environment = Environment(variables=agent.variables, home=str(agent.home), cwd=str(agent.work))
    layers = Layers(str(agent.agent_dir), lambda problem: None)
    owner = ProcessOwner()
    setup = make_sandbox(AgentOptions(sandbox="workspace"), environment, str(agent.agent_dir), layers, owner)
    setup.enclose_commands(str(agent.work))
    folder = str(agent.work)

    async def output_of(command: str, sealed: bool) -> str:
        line = ["/bin/sh", "-c", command]
        ran = await run_program(owner, line, cwd=folder, environment=agent.variables, sealed=sealed)
        return ran.stdout.decode()

    try:
        await setup.find_working_wall()
        everywhere = 'for place in . "$TMPDIR" /dev/shm; do touch "$place/left" && echo made; done'
        # It has a place for its own files, under two names.
        assert await output_of(everywhere, sealed=True) == "made\n" * 2
        seen = f'ls -d left "$TMPDIR"/* /dev/shm/* {setup.policy.scratch if setup.policy else ""}/*/left'
        assert await output_of(seen, sealed=False) == ""
        assert await output_of(everywhere, sealed=False) == "made\n" * 3
    finally:
        await owner.kill_everything()
        setup.close()


async def test_a_secret_with_a_second_name_ends_the_start(agent: InProcessAgent) -> None:
    (agent.home / ".ssh").mkdir()
    (agent.home / ".ssh" / "id_rsa").write_text("PRIVATE")
    os.link(agent.home / ".ssh" / "id_rsa", agent.work / "copy")
    with pytest.raises(StartupError, match=r"id_rsa has a second name \(a hard link\) by which commands could read it"):
        await agent.start(sandbox="workspace")
    (agent.work / "copy").unlink()
    (agent.work / ".envrc").touch()
    os.link(agent.work / ".envrc", agent.work / "other")
    with pytest.raises(StartupError, match=r"\.envrc has a second name .*/other, by which commands could write it"):
        await agent.start(sandbox="workspace")
    os.rename(agent.work / "other", agent.home / "other")
    await agent.start(sandbox="workspace")


def test_what_lies_beside_the_package_is_kept_where_it_is_not_the_working_folder() -> None:
    source = os.path.dirname(os.path.dirname(pigeon.__file__))
    assert source in _own_code_folders("/somewhere")
    assert source not in _own_code_folders(source)
    assert os.path.join(source, "pigeon") in _own_code_folders(source)


async def test_a_folder_to_be_written_must_not_hold_what_pigeon_puts_in_the_place_of_secrets(
    agent: InProcessAgent,
) -> None:
    temporary = agent.root / "temporary"
    temporary.mkdir()
    agent.configure({"sandbox": {"mode": "workspace", "writable": [str(temporary)]}}, TMPDIR=str(temporary))
    with pytest.raises(StartupError, match="which Pigeon needs"):
        await agent.start()


async def test_files_that_the_sandbox_hides_are_not_offered(agent: InProcessAgent) -> None:
    for name in (".ssh/id_ed25519", "notes.txt"):
        (agent.home / name).parent.mkdir(exist_ok=True)
        (agent.home / name).write_text("")
    await agent.start(cwd=str(agent.home), sandbox="read-only")
    shown = agent.agent.session.dependencies.files.find_files("", 100)
    assert "notes.txt" in shown
    assert not [path for path in shown if path.startswith(".ssh")]
