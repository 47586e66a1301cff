"""Commands behind a real wall: they run as ever, and what is refused is refused by both builders alike."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pigeon.sandbox import wall as wall_module
from pigeon.sandbox.plan import STANDS_IN_SINCE, plan_of
from pigeon.sandbox.policy import Unprotectable
from pigeon.system.process.reaper import LOST
from pigeon.system.process.run_program import ProgramResult, run_program
from pigeon.system.process.start import ProcessOwner
from support.processes import children, eventually, helpers
from support.sandboxed_runs import TESTS, policy_for, wall_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls of Linux")
BUILDERS = ["landlock", "bubblewrap"]
GIT = "git -c user.name=n -c user.email=e@x"


class Place:
    """A working folder with a home beside it, and commands in it behind a wall."""

    def __init__(self, folder: Path, builder: str) -> None:
        self.home, self.work, self.scratch = folder / "home", folder / "work", folder / "scratch"
        self.home.mkdir()
        self.work.mkdir()
        self.builder = builder
        self.owners: list[ProcessOwner] = []

    def owner(self, **policy: Any) -> ProcessOwner:
        self.policy = policy_for(self.work, self.home, self.scratch, **policy)
        owner = ProcessOwner(wall_of(self.builder, self.policy))
        self.owners.append(owner)
        return owner

    async def run(self, command: str, owner: ProcessOwner | None = None, **more: Any) -> ProgramResult:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), **more.pop("variables", {})}
        given = {"cwd": str(self.work), "environment": environment, "timeout": 60, **more}
        return await run_program(owner or self.owner(), ["/bin/bash", "-c", command], **given)

    def repository(self, folder: Path | None = None) -> None:
        subprocess.run(["git", "init", "-q", str(folder or self.work)], check=True)

    def outside(self, command: str) -> None:
        subprocess.run(["/bin/bash", "-c", command], check=True)

    def names(self) -> set[str]:
        return set(os.listdir(self.work))


@pytest.fixture(params=BUILDERS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    made = Place(tmp_path, request.param)
    yield made
    for owner in made.owners:
        assert await owner.kill_everything(10)


@pytest.mark.parametrize(("ending", "code"), [("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)])
async def test_a_command_ends_as_it_does_without_a_wall(place: Place, ending: str, code: int) -> None:
    ran = await place.run(f"cat; echo to-errors >&2; {ending}", stdin=b"given")
    assert (ran.stdout, ran.stderr, ran.code) == (b"given", b"to-errors\n", code)


async def test_a_command_has_its_folder_its_variables_and_three_descriptors(place: Place) -> None:
    (place.work / "below").mkdir()
    cwd = str(place.work / "below")
    leads_out = {"SSH_AUTH_SOCK": "/x", "KEPT": "yes"}
    command = "pwd; echo $KEPT$SSH_AUTH_SOCK $PIGEON_SANDBOX; echo /proc/self/fd/*; ulimit -n; ulimit -Sn 64; ulimit -n"
    ran = await place.run(command, cwd=cwd, variables=leads_out)
    folder, variables, descriptors, before, after = ran.stdout.decode().splitlines()
    assert (folder, variables, after) == (cwd, "yes workspace", "64")
    assert set(descriptors.split()) <= {f"/proc/self/fd/{number}" for number in (0, 1, 2, 3)}
    assert int(before) > 64


async def test_a_command_that_must_stop_may_tidy_up_first(place: Place) -> None:
    line = ["/bin/bash", "-c", "trap 'echo tidied; exit 3' TERM; echo ready; sleep 60 & wait"]
    process = await place.owner().start(line, cwd=str(place.work), environment={"PATH": os.environ["PATH"]})
    assert await process.read() == b"ready\n"
    process.terminate()
    assert await process.read() == b"tidied\n"
    assert await process.wait() == 3
    process.close()


async def test_what_runs_in_the_background_goes_on_and_ends_with_the_agent(place: Place) -> None:
    owner = place.owner()
    ran = await place.run("(setsid sleep 600; true) >/dev/null 2>&1 & echo begun; readlink /proc/self/ns/pid", owner)
    assert ran.stdout.startswith(b"begun")
    namespace = ran.stdout.decode().splitlines()[1]
    assert _processes_in(namespace)
    assert (place.work / ".pigeon").is_dir()
    assert await owner.kill_everything(10)
    assert await asyncio.to_thread(eventually, lambda: not _processes_in(namespace))
    assert place.names() == set()


@pytest.mark.leaves_open
async def test_what_stands_in_stays_where_it_is_not_known_what_is_left_of_a_command(place: Place) -> None:
    owner = place.owner()
    line = ["/bin/bash", "-c", "echo begun; exec sleep 600"]
    process = await owner.start(line, cwd=str(place.work), environment={"PATH": os.environ["PATH"]})
    assert await process.read() == b"begun\n"
    # As for want of memory: what the reaper leaves behind is killed, but a moment later.
    for reaper in [reaper for helper in helpers() for reaper in children(helper)]:
        os.kill(reaper, signal.SIGKILL)
    assert await process.wait() == LOST
    assert await process.wait_until_gone(10)
    assert (place.work / ".pigeon").is_dir()
    process.close()


def _processes_in(namespace: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                found.append(pid)
        except OSError:
            continue
    return found


async def test_a_command_that_cannot_be_started_is_an_error_and_leaves_nothing(place: Place) -> None:
    owner = place.owner()
    with pytest.raises(FileNotFoundError):
        await run_program(owner, ["/no/such/program"], cwd=str(place.work), environment={})
    with pytest.raises(FileNotFoundError):
        await run_program(owner, ["/bin/true"], cwd="/no/such/folder", environment={})
    assert place.names() == set()


async def test_ordinary_work_goes_on(place: Place) -> None:
    place.repository()
    (place.work / "test_it.py").write_text("def test_it() -> None:\n    assert 1 + 1 == 2\n")
    (place.work / "main.c").write_text("int main(void) { return 0; }\n")
    (place.work / "Makefile").write_text("all: main\nmain: main.c\n\tcc -o main main.c\n")
    (place.work / "package.json").write_text(json.dumps({"scripts": {"hello": "node -e 'console.log(40+2)'"}}))
    steps = ["git status --short", "git add .", f"{GIT} commit -qm one", "git log --oneline | grep one"]
    steps += ["git checkout -qb other", "echo more >> main.c", f"{GIT} commit -qam two", "git stash list", "git gc -q"]
    steps += [f"{sys.executable} -m venv --without-pip venv", "venv/bin/python -c 'import json'"]
    steps += [f"{sys.executable} -m pytest -q -p no:cacheprovider -c /dev/null test_it.py | grep '1 passed'"]
    if shutil.which("make") and shutil.which("cc"):
        steps += ["make && ./main"]
    if shutil.which("npm"):
        steps += ["npm run --silent hello | grep 42"]
    ran = await place.run("set -e\n" + "\n".join(steps))
    assert ran.code == 0, ran.stdout + ran.stderr


async def test_a_program_inside_has_its_own_loopback_temporary_folder_and_shared_memory(place: Place) -> None:
    program = """
import multiprocessing, os, socket, tempfile
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
left, right = socket.socketpair()
with multiprocessing.Lock(), tempfile.NamedTemporaryFile() as file:
    assert file.name.startswith(os.environ["TMPDIR"])
open("/dev/shm/x", "w").write("x")
print("fine")
"""
    ran = await place.run(f"{sys.executable} -c '{program}'")
    assert ran.stdout == b"fine\n", ran.stderr


async def test_with_the_network_ports_are_reached_and_sockets_of_programs_are_not(place: Place) -> None:
    name = f"pigeon-{os.getpid()}-{place.builder}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        program = (
            "import socket\n"
            f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]})).close(); print('reached')\n"
            f"socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        )
        ran = await place.run(f'{sys.executable} -c "{program}"', place.owner(network=True))
    assert ran.stdout == b"reached\n"
    assert b"Operation not permitted" in ran.stderr


async def test_read_only_writes_nothing_but_temporary_files_and_named_folders(place: Place) -> None:
    more = place.home / "cache"
    more.mkdir()
    (place.work / "file").write_text("x")
    command = f"cat file; touch new; rm file; touch $TMPDIR/new && touch {more}/new && echo written"
    ran = await place.run(command, place.owner(mode="read-only", writable=(str(more),)))
    assert ran.stdout == b"xwritten\n"
    assert ran.stderr.count(b"Read-only file system") == 2
    assert place.names() == {"file"}
    assert os.listdir(more) == ["new"]


async def test_a_work_tree_commits_and_the_hooks_of_its_repository_stay(place: Place, tmp_path: Path) -> None:
    main = tmp_path / "main"
    place.repository(main)
    place.work.rmdir()
    place.outside(f"cd {main} && {GIT} commit -q --allow-empty -m zero && git worktree add -q {place.work}")
    hooks, config = main / ".git" / "hooks", main / ".git" / "config"
    own = main / ".git" / "worktrees" / "work"
    command = f"set -e; echo x > file; git add .; {GIT} commit -qm one; git log --oneline | wc -l; set +e\n"
    command += f"touch {hooks}/pre-commit; echo x >> {config}; echo / > {own}/commondir; rm .git; echo x > {main}/x"
    ran = await place.run(command)
    assert ran.stdout.strip() == b"2", ran.stderr
    assert len(ran.stderr.splitlines()) == 5, ran.stderr
    assert set(os.listdir(main)) == {".git"}


async def test_a_file_that_names_a_folder_elsewhere_opens_nothing(place: Place, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "objects").mkdir(parents=True)
    (victim / "HEAD").write_text("ref: refs/heads/main\n")
    (place.work / ".git").write_text(f"gitdir: {victim}\n")
    ran = await place.run(f"touch {victim}/new {victim}/objects/new")
    assert ran.stderr.count(b"Read-only file system") == 2


async def test_a_work_tree_that_its_repository_does_not_know_opens_nothing(place: Place, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    place.repository(victim)
    (place.work / "fake").mkdir()
    (place.work / "fake" / "gitdir").write_text(str(place.work / ".git"))
    (place.work / "fake" / "commondir").write_text(str(victim / ".git"))
    (place.work / ".git").write_text("gitdir: fake\n")
    ran = await place.run(f"touch {victim}/.git/refs/new {victim}/.git/objects/new")
    assert ran.stderr.count(b"Read-only file system") == 2


async def test_hooks_that_the_configuration_names_are_not_made(place: Place) -> None:
    place.repository()
    place.outside(f"git -C {place.work} config core.hooksPath tools/hooks")
    ran = await place.run("mkdir -p tools/hooks && echo made")
    assert (ran.stdout, place.names()) == (b"", {".git"}), plan_of(place.policy)


async def test_what_git_takes_orders_from_is_kept_at_any_depth(place: Place) -> None:
    place.repository()
    deep, part = place.work / "a" / "b" / "deep", place.work / "libs" / "x" / "part"
    place.repository(deep)
    (deep / "tools").mkdir()
    (deep / "tools" / "filter").write_text("#!/bin/sh\ncat\n")
    place.outside(f"git -C {deep} config filter.x.clean ./tools/filter; git -C {deep} config include.path ../shared")
    place.outside(f"mkdir -p {part.parent}; git init -q --separate-git-dir {place.work}/.data {part}")
    (place.home / ".gitconfig").write_text("[core] hooksPath = .hooks\n")
    targets = ["a/b/deep/.git/config", "a/b/deep/.git/hooks/pre-commit", "a/b/deep/tools/filter", "a/b/deep/shared"]
    targets += ["libs/x/part/.git", ".data/config", ".data/hooks/pre-commit", ".data/commondir"]
    targets += [".hooks/pre-commit", "a/b/deep/.hooks/pre-commit", "libs/x/part/.hooks/pre-commit"]
    tries = "\n".join(f"mkdir -p $(dirname {name}); echo evil >> {name} && echo {name}" for name in targets)
    moves = "\n".join(
        f"mv {name} {name}.old && echo {name}" for name in ("a", "a/b", "a/b/deep", "libs", ".data", ".hooks")
    )
    ran = await place.run(
        f"{tries}\n{moves}\ngit -C a/b/deep status -s && {GIT} -C a/b/deep commit -q --allow-empty -m x"
    )
    assert (ran.stdout.decode().splitlines(), ran.code) == (["?? shared", "?? tools/"], 0), ran.stderr
    assert not (place.work / ".hooks").exists()
    await place.run("git init -q made && git -C made config x.y z && rm -r made", owner := place.owner())
    assert (await place.run("git init -q made && rm -r made && echo gone", owner)).stdout == b"gone\n"


async def test_submodules_and_work_trees_are_made_and_updated(place: Place, tmp_path: Path) -> None:
    place.repository()
    place.repository(tmp_path / "other")
    place.outside(f"{GIT} -C {tmp_path}/other commit -q --allow-empty -m one")
    place.outside(f"cd {place.work} && {GIT} -c protocol.file.allow=always submodule --quiet add {tmp_path}/other part")
    place.outside(f"cd {place.work} && {GIT} commit -qam one && rm -rf part .git/modules/part && mkdir part")
    steps = ["git -c protocol.file.allow=always submodule --quiet update", "git -C part log --oneline | grep one"]
    steps += ["git worktree add -q tree", f"{GIT} -C tree commit -q --allow-empty -m two", "git worktree remove tree"]
    ran = await place.run("set -e\n" + "\n".join(steps))
    assert ran.code == 0, ran.stdout + ran.stderr


async def test_no_repository_is_made_to_take_its_configuration_from_elsewhere(place: Place) -> None:
    place.repository()
    module = place.work / ".git" / "modules" / "libs" / "part"
    place.outside(f"git init -q --bare {module}")
    targets = [f"{folder}/{name}" for folder in (".git", module) for name in ("commondir", "config.worktree")]
    ran = await place.run(f"for f in {' '.join(targets)}; do rm -f $f; mv x $f; echo ../evil > $f; done; git status -s")
    assert ran.stderr.count(b": Read-only file system") == 4
    assert ran.code == 0
    assert [name for name in targets if (place.work / name).exists()] == []


async def test_what_stands_in_stays_while_another_agent_needs_it_and_goes_with_the_last(place: Place) -> None:
    names = [place.work / f"{kind}-{number}" for number in (1, 2) for kind in ("began", "go")]
    for name in names:
        os.mkfifo(name)
    command = "echo > began-{0}; cat go-{0}; mkdir -p .pigeon/extensions"
    running = []
    for number in (1, 2):
        running.append(asyncio.ensure_future(place.run(command.format(number), place.owner())))
        await asyncio.to_thread(names[2 * number - 2].read_bytes)
    for number in (1, 2):
        assert (place.work / ".pigeon").is_dir()
        await asyncio.to_thread(names[2 * number - 1].write_bytes, b"")
        assert b"Read-only file system" in (await running[number - 1]).stderr
    assert place.names() == {name.name for name in names}


async def test_an_empty_folder_of_the_user_is_not_taken_away(place: Place) -> None:
    (place.work / ".pigeon").mkdir()
    await place.run("true")
    assert place.names() == {".pigeon"}


async def test_empty_folders_stand_in_for_what_must_not_be_made_only_while_commands_run(place: Place) -> None:
    ran = await place.run("ls -A; mkdir .pigeon/x .pi/x; git init -q . && ls .git/hooks >/dev/null && echo made")
    assert ran.stdout.split() == [b".agents", b".mcp.json", b".omp", b".pi", b".pigeon", b"made"]
    assert ran.stderr.count(b"Read-only file system") == 2
    assert place.names() == {".git"}


async def test_a_command_waits_for_another_agent_that_is_removing_what_stands_in(place: Place) -> None:
    stands_in = place.work / ".pi"
    stands_in.mkdir()
    removing = os.open(stands_in, os.O_RDONLY)
    fcntl.flock(removing, fcntl.LOCK_EX)

    def remove() -> None:
        stands_in.rmdir()
        os.close(removing)

    asyncio.get_running_loop().call_later(0.1, remove)
    ran = await place.run("ls -A; mkdir .pi/x")
    assert ran.stdout.split() == [b".agents", b".mcp.json", b".omp", b".pi", b".pigeon"]
    assert ran.stderr.count(b"Read-only file system") == 1
    assert place.names() == set()


STAND_INS = (".agents", ".mcp.json", ".omp", ".pi", ".pigeon")


def unlocked_names(folder: Path) -> list[str]:
    """The stand-ins that are missing, or that another agent could remove now."""
    found = []
    for name in STAND_INS:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY)
        except FileNotFoundError:
            found.append(name)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(name)
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
    return found


@pytest.mark.parametrize("race", ["is being removed", "was removed", "was replaced"])
async def test_what_stands_in_is_there_and_locked_although_another_agent_removes_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, race: str
) -> None:
    wall = wall_of(place.builder, policy_for(place.work, place.home, place.scratch))
    raced: list[str] = []
    create, flock = wall_module._create_stand_in, fcntl.flock

    def create_what_goes_again(path: str, content: bytes | None, spare: str) -> None:
        if not raced:
            raced.append(path)
            raise FileExistsError(path)
        create(path, content, spare)

    def lock_what_is_another_by_now(descriptor: int, operation: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not raced and os.path.isdir(path):
            raced.append(path)
            os.rename(path, f"{path}-old")
            os.mkdir(path)
        flock(descriptor, operation)

    if race == "is being removed":
        (place.work / ".pi").mkdir()
        removing = os.open(place.work / ".pi", os.O_RDONLY)
        flock(removing, fcntl.LOCK_EX)

        def remove() -> None:
            (place.work / ".pi").rmdir()
            os.close(removing)

        asyncio.get_running_loop().call_later(0.1, remove)
    elif race == "was removed":
        monkeypatch.setattr(wall_module, "_create_stand_in", create_what_goes_again)
    else:
        monkeypatch.setattr(fcntl, "flock", lock_what_is_another_by_now)
    await wall.prepare_program("/bin/true", ["true"], str(place.work), {})
    monkeypatch.undo()
    try:
        assert unlocked_names(place.work) == []
    finally:
        wall.on_program_ended()
    assert unlocked_names(place.work) == list(STAND_INS)


async def test_what_stands_in_is_away_between_commands_and_the_same_again_in_the_next(place: Place) -> None:
    wall = wall_of(place.builder, policy_for(place.work, place.home, place.scratch))
    before = []
    for _ in range(2):
        await wall.prepare_program("/bin/true", ["true"], str(place.work), {})
        before.append([(place.work / name).stat().st_ino for name in STAND_INS if name != ".mcp.json"])
        wall.on_program_ended()
        assert place.names() == set()
    assert before[0] == before[1]


async def test_what_is_put_where_something_stood_in_is_left_alone(place: Place) -> None:
    wall = wall_of(place.builder, policy_for(place.work, place.home, place.scratch))
    await wall.prepare_program("/bin/true", ["true"], str(place.work), {})
    (place.work / ".pi" / "kept").touch()
    wall.on_program_ended()
    assert place.names() == {".pi"}
    (place.work / ".omp").mkdir()
    await wall.prepare_program("/bin/true", ["true"], str(place.work), {})
    assert (place.work / ".omp").stat().st_mtime > STANDS_IN_SINCE
    wall.on_program_ended()
    assert place.names() == {".omp", ".pi"}
    assert (place.work / ".pi" / "kept").exists()


async def test_a_link_that_cannot_be_protected_stops_the_command(place: Place, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", place.work / ".pi")
    with pytest.raises(Unprotectable, match=r"\.pi is a link"):
        await place.run("true")


async def test_keys_of_the_agent_stay_hidden_though_they_are_replaced_while_a_command_runs(place: Place) -> None:
    agent = place.home / ".pigeon" / "agent"
    (agent / "sessions" / "one").mkdir(parents=True)
    (place.home / "skills" / "s").mkdir(parents=True)
    (place.home / "skills" / "s" / "run.sh").write_text("echo a skill\n")
    os.symlink(place.home / "skills", agent / "skills")
    (agent / "auth.json").write_text("PRIVATE")
    for name in ("began", "go"):
        os.mkfifo(place.work / name)
    command = f"sh {agent}/skills/s/run.sh; echo > began; cat go; cat {agent}/*.json; ls {agent}; touch {agent}/x"
    wall = wall_of(place.builder, policy_for(place.work, place.home, place.scratch), str(agent / "sessions" / "one"))
    place.owners.append(owner := ProcessOwner(wall))
    running = asyncio.ensure_future(place.run(f"touch {agent}/sessions/one/kept; {command}", owner))
    await asyncio.to_thread((place.work / "began").read_bytes)
    for name in ("auth.json", "models.json"):
        (agent / "new").write_text("PRIVATE")
        os.rename(agent / "new", agent / name)
    await asyncio.to_thread((place.work / "go").write_bytes, b"")
    ran = await running
    assert ran.stdout.split() == [b"a", b"skill", b"sessions", b"skills"]
    assert ran.stderr.count(b"Read-only file system") == 1
    assert (agent / "sessions" / "one" / "kept").exists()


async def test_a_named_pipe_outside_is_closed_where_landlock_stands(place: Place) -> None:
    pipe = place.home / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    ran = await place.run(f"echo x > {pipe} && echo written")
    os.close(reading)
    # Through any read-only mount a pipe can be written; the page about security says so of bubblewrap.
    assert ran.stdout == (b"" if place.builder == "landlock" else b"written\n")


async def test_commands_side_by_side_do_not_disturb_each_other(place: Place) -> None:
    owner = place.owner()
    ran = await asyncio.gather(*(place.run(f"echo {number} > {number}; cat {number}", owner) for number in range(5)))
    assert [int(one.stdout) for one in ran] == list(range(5))
    assert place.names() == {"0", "1", "2", "3", "4"}


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize("apart", [True, False])
async def test_bubblewrap_is_kept_apart_from_mounts_that_are_made_later(tmp_path: Path, apart: bool) -> None:
    place = Place(tmp_path, "bubblewrap")
    policy = policy_for(place.work, place.home, place.scratch)
    owner = ProcessOwner(wall_of("bubblewrap", policy, apart=apart))
    try:
        ran = await place.run("cat; pwd; echo /proc/self/fd/*; exit 7", owner, stdin=b"given\n")
    finally:
        await owner.kill_everything()
    given, folder, descriptors = ran.stdout.decode().splitlines()
    assert (given, folder, ran.code) == ("given", str(place.work), 7)
    assert set(descriptors.split()) <= {f"/proc/self/fd/{number}" for number in (0, 1, 2, 3)}
    # Where mounts are shared, as in most systems, a namespace that gets those made later says "master".
    line = ["unshare", "-rm", "--propagation", "shared", sys.executable, "-m", "support.sandboxed_runs", "--mounts"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    line += [str(tmp_path / "other"), str(int(apart))]
    told = await asyncio.to_thread(subprocess.run, line, check=True, capture_output=True, text=True, env=environment)
    assert ("master:" in told.stdout) is not apart
    assert str(tmp_path / "other") in told.stdout
