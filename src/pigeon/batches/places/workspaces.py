"""The workspace of a task: an empty folder, a copy of a folder, or a fresh checkout of a revision.

A repository is cloned once for all batches, as a mirror in a cache, and each task gets a clone of that, with files of
its own: what a task does to them must not reach the mirror. Which commit it gets was decided before the batch began
(`revisions.py`); for a batch of an older version, which has not, a revision is looked up here, once for a batch
(`batch` names it). All of it is safe to be done by several processes, and to be killed at any time: a lock is held
while a mirror is made, and a mirror that is not whole has another name.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeGuard

from pigeon.app.environment import Environment
from pigeon.batches.records import Workspace
from pigeon.batches.task_files import is_path
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import swap_file
from pigeon.system.process.run_program import run_program
from pigeon.system.process.start import ProcessOwner
from pigeon.wire.errors import PigeonError

GIT_SECONDS = 1800.0
LONGEST_REASON = 500
LARGEST_PATCH = 64 * 1024 * 1024
LOCK_PAUSE = 0.05
# A folder that is being removed.
OLD = ".old-"
# What a hook of git is called with, which is about another repository; and the window in which passwords are asked for.
NOT_FOR_GIT = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "SSH_ASKPASS"),
)
# Commits that batches began with, in mirrors: the branches that had them may be gone.
KEPT_REFS = "refs/pigeon/"
# Submodules of a repository of this machine may be there, too; those of others must not read our files.
LOCAL_SUBMODULES = ("-c", "protocol.file.allow=always")


class WorkspaceError(PigeonError):
    """The workspace of a task cannot be made; the text says why."""


class GitTookTooLong(WorkspaceError):
    """Git was stopped because its time was over, or because it printed too much."""


def git_variables(environment: Environment, agent_dir: str) -> dict[str, str]:
    """The variables for git, which is not looked for where commands of an agent could have put another one."""
    return {**environment.variables, "PATH": environment.programs_path(agent_dir)}


class Git:
    """Runs git, without questions and in one language."""

    def __init__(self, owner: ProcessOwner, variables: Mapping[str, str]) -> None:
        self._owner = owner
        self._variables = {
            **{name: value for name, value in variables.items() if name not in NOT_FOR_GIT},
            "GIT_TERMINAL_PROMPT": "0",
            "GCM_INTERACTIVE": "never",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
        }

    async def run(self, *arguments: str, cwd: str = "/", seconds: float = GIT_SECONDS) -> str:
        """What it prints; raises `WorkspaceError` with what it complains about, `GitTookTooLong` after so long."""
        try:
            result = await run_program(
                self._owner,
                ["git", *arguments],
                cwd=cwd,
                environment=self._variables,
                timeout=seconds,
                limit=LARGEST_PATCH,
            )
        except OSError as error:
            raise WorkspaceError(f"git cannot be run: {error.strerror or error}") from None
        if result.killed:
            raise GitTookTooLong(f"git {arguments[0]} took longer than {seconds:g} s, or printed too much")
        if result.code:
            raise WorkspaceError(f"git: {_reason(result.stderr)}")
        return result.stdout.decode("utf-8", "surrogateescape").strip("\n")


def _reason(stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line.partition(": ")[2] for line in lines if line.startswith(("fatal: ", "error: "))]
    # What the other side or its transport said comes before git's own words, which then tell little.
    told = [line for line in lines if line.startswith(("ssh: ", "remote: ", "ERROR: ")) or "denied" in line]
    return " ".join([*told, *fatal] or lines[-3:])[:LONGEST_REASON] or "it failed without a message"


class Workspaces:
    """Makes workspaces; `cache` is the folder of mirrors, `batch` the batch that they are made for."""

    def __init__(self, cache: str, batch: str, owner: ProcessOwner, variables: Mapping[str, str]) -> None:
        self._cache = cache
        self._batch = batch
        self._git = Git(owner, variables)
        self._variables = variables

    async def make(self, wanted: Workspace | None, path: str, leave_out: str, commit: str | None = None) -> str | None:
        """Make it at a path that does not exist; returns the commit that it begins with, if it has one.

        `commit` is the one that was decided on. The folder `leave_out` is not copied: results may stand in the folder
        that is worked on.
        """
        if wanted is None:
            os.mkdir(path)
            return None
        if wanted.folder is not None:
            await asyncio.to_thread(copy_folder, wanted.folder, path, leave_out)
            return None
        assert wanted.git is not None
        mirror, commit = await self._found(wanted.git, commit or wanted.revision)
        await self._check_out(wanted.git, mirror, commit, path)
        return commit

    async def changes(self, workspace: str, commit: str, owner: ProcessOwner) -> str:
        """What was changed in a checkout since its commit, new files included, as a patch.

        What a command has left there can make git run programs: `owner` is the agent's own, behind its wall.
        """
        git = Git(owner, self._variables)
        await git.run("add", "--all", "--intent-to-add", cwd=workspace)
        return await git.run("diff", "--binary", commit, cwd=workspace)

    async def _check_out(self, git: str, mirror: str, commit: str, path: str) -> None:
        run = self._git.run
        # Files that were linked instead of copied could be changed in the mirror, and in what it was linked from.
        await run("clone", "--quiet", "--no-checkout", "--no-hardlinks", mirror, path)
        await run("remote", "set-url", "origin", git, cwd=path)
        await run("checkout", "--quiet", "--detach", commit, cwd=path)
        if _exists(os.path.join(path, ".gitmodules")):
            allowed = LOCAL_SUBMODULES if is_path(git) else ()
            await run(*allowed, "submodule", "--quiet", "update", "--init", "--recursive", cwd=path)

    async def has(self, git: str, revision: str | None) -> bool:
        """Whether the mirror of a repository has a commit, without a connection."""
        mirror = self._mirror(git)
        return _exists(mirror) and await self._has(mirror, revision)

    async def commit_of(self, git: str, revision: str | None) -> str:
        """The commit that a revision of a repository is now; its mirror has it then."""
        async with self._locked(git) as mirror:
            await self._update(git, mirror, revision)
            return await self._commit(mirror, git, revision)

    async def commit_in(self, folder: str, git: str, revision: str | None) -> str:
        """The commit that a revision is in a repository of this machine."""
        return await self._commit(folder, git, revision)

    def _mirror(self, git: str) -> str:
        return os.path.join(self._cache, f"{hashlib.sha256(git.encode()).hexdigest()[:24]}.git")

    @asynccontextmanager
    async def _locked(self, git: str) -> AsyncIterator[str]:
        """The mirror of a repository, which no other process changes meanwhile."""
        make_private_folder(self._cache)
        mirror = self._mirror(git)
        async with _locked(f"{mirror.removesuffix('.git')}.lock"):
            yield mirror

    async def _found(self, git: str, revision: str | None) -> tuple[str, str]:
        """The mirror of a repository, and the commit that a revision of it is for this batch."""
        asked = hashlib.sha256((revision or "HEAD").encode()).hexdigest()[:16]
        known = os.path.join(self._mirror(git), "pigeon", f"{self._batch}-{asked}")
        if commit := _kept(known):
            return self._mirror(git), commit
        async with self._locked(git) as mirror:
            if commit := _kept(known):
                return mirror, commit
            await self._update(git, mirror, revision)
            commit = await self._commit(mirror, git, revision)
            await self._git.run("update-ref", f"{KEPT_REFS}{commit}", commit, cwd=mirror)
            os.makedirs(os.path.dirname(known), exist_ok=True)
            swap_file(known, commit.encode("ascii"), 0o644)
            return mirror, commit

    async def _update(self, git: str, mirror: str, revision: str | None) -> None:
        run = self._git.run
        if not _exists(mirror):
            half = f"{mirror}.half"
            remove_folder(half)
            await run("clone", "--quiet", "--mirror", "--no-hardlinks", git, half)
            os.rename(half, mirror)
        elif not is_whole_hash(revision) or not await self._has(mirror, revision):
            # A commit by its whole name is the same for ever; anything else may have moved.
            refs = ("+refs/*:refs/*", f"^{KEPT_REFS}*")
            await run("fetch", "--quiet", "--prune", "--force", "origin", *refs, cwd=mirror)
            with suppress(WorkspaceError):
                head = await run("ls-remote", "--symref", "origin", "HEAD", cwd=mirror)
                await run("symbolic-ref", "HEAD", head.split()[1], cwd=mirror)
        if is_whole_hash(revision) and not await self._has(mirror, revision):
            # No branch has it any more. Most servers give it all the same; if not, it is said to be missing.
            with suppress(WorkspaceError):
                await run("fetch", "--quiet", "origin", revision, cwd=mirror)

    async def _has(self, mirror: str, revision: str | None) -> bool:
        try:
            await self._git.run("cat-file", "-e", f"{revision}^{{commit}}", cwd=mirror)
        except WorkspaceError:
            return False
        return True

    async def _commit(self, mirror: str, git: str, revision: str | None) -> str:
        for candidate in (revision or "HEAD", f"refs/remotes/origin/{revision}"):
            with suppress(WorkspaceError):
                return await self._git.run("rev-parse", "--verify", "--quiet", f"{candidate}^{{commit}}", cwd=mirror)
        if revision is None:
            raise WorkspaceError(f"{git} has no commit")
        raise WorkspaceError(f'{git} has no revision "{revision}"')


def _kept(path: str) -> str | None:
    """The commit that was looked up before."""
    with suppress(FileNotFoundError), open(path, encoding="ascii") as file:
        return file.read()
    return None


def _exists(path: str) -> bool:
    return os.path.exists(path)


def is_whole_hash(revision: str | None) -> TypeGuard[str]:
    """Whether it is the whole name of a commit, and cannot move."""
    return revision is not None and len(revision) in (40, 64) and not set(revision) - set("0123456789abcdef")


@asynccontextmanager
async def _locked(path: str) -> AsyncIterator[None]:
    """Hold a lock that other processes of this machine respect; it ends with the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOCK_PAUSE)
        yield
    finally:
        os.close(descriptor)


def copy_folder(source: str, path: str, leave_out: str) -> None:
    """Copy a folder with its links, modes and times; raises `WorkspaceError`.

    Pipes, sockets and devices are left out, and so is the folder `leave_out`.
    """
    left_out = os.path.realpath(leave_out)

    def ignored(folder: str, names: Sequence[str]) -> set[str]:
        found = set()
        with os.scandir(folder) as entries:
            for entry in entries:
                kind = entry.stat(follow_symlinks=False).st_mode
                is_plain = stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)
                if not is_plain or (stat.S_ISDIR(kind) and os.path.realpath(entry.path) == left_out):
                    found.add(entry.name)
        return found

    try:
        shutil.copytree(source, path, symlinks=True, ignore=ignored)
    except shutil.Error as error:
        first = error.args[0][0] if error.args and error.args[0] else (source, "", str(error))
        raise WorkspaceError(f"{first[0]} cannot be copied: {first[2]}") from None
    except OSError as error:
        raise WorkspaceError(f"{error.filename or source} cannot be copied: {error.strerror or error}") from None
    # The copy is to be worked on, even where the folder itself was not.
    os.chmod(path, os.stat(path).st_mode | stat.S_IRWXU)


def remove_folder(path: str) -> None:
    """Remove a folder with everything in it, read-only ones included; what is gone already is no error."""

    def again(function: Callable[..., Any], name: str, caught: Any) -> None:
        error = caught[1]
        if isinstance(error, FileNotFoundError):
            return
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise error
        for one in (os.path.dirname(name), name):
            with suppress(OSError):
                os.chmod(one, stat.S_IRWXU, follow_symlinks=False) if os.path.islink(one) else os.chmod(one, 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            remove_folder(name)
        else:
            os.unlink(name)

    if os.path.islink(path):
        os.unlink(path)
        return
    shutil.rmtree(path, onerror=again)


def take_away(path: str) -> str:
    """Give a folder a name of which nothing more can come, in one step; returns the name.

    What still works there, for a driver that was killed, cannot make a result of what is left while it is removed.
    """
    taken = os.path.join(os.path.dirname(path), f"{OLD}{os.path.basename(path).lstrip('.')}-{os.urandom(4).hex()}")
    os.rename(path, taken)
    return taken
