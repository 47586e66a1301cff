"""The workspace of a task: an empty folder, a copy of a folder, or a fresh checkout of a revision.

A repository is cloned once for all batches, as a mirror in a cache, and each task gets its own clone of the mirror
without shared files, so that nothing it does reaches the mirror. The commit was decided before the batch started
(`revisions.py`); for batches of older versions, a revision is looked up here, once per batch (`batch` identifies it).
Several processes may do all this at once and be killed at any time: a lock is held while a mirror is made, and an
incomplete mirror has another name.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeGuard

from pigeon.frontends.batch.records import Workspace
from pigeon.frontends.batch.task_files import is_local_repository
from pigeon.sandbox.written_folders import filter_programs_path
from pigeon.system.append_file import make_private_folder
from pigeon.system.environment import Environment
from pigeon.system.files import replace_file_atomically
from pigeon.system.git import Git, GitError, OwnRepository

LOCK_PAUSE = 0.05
# Prefix of a folder that is being removed.
OLD = ".old-"
# Commits that batches began with, in mirrors: the branches that had them may be gone.
KEPT_REFS = "refs/pigeon/"
# Submodules of a local repository may be local, too; those of remote ones must not read our files.
LOCAL_SUBMODULES = ("-c", "protocol.file.allow=always")


class WorkspaceError(GitError):
    """The workspace of a task cannot be made; the text says why."""


def git_variables(environment: Environment, agent_dir: str) -> dict[str, str]:
    """Variables for git. Git itself is looked up only where no agent's command could have put another one."""
    return {**environment.variables, "PATH": filter_programs_path(agent_dir, environment.variables.get("PATH"))}


async def make_patch(git: Git, workspace: str, commit: str, temporary_folder: str) -> bytes:
    """The changes in a checkout since its commit, including new files, as a patch; raises `GitError`.

    `git` should run as commands of the agent do, in its sandbox, since it reads what the agent has written.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pigeon-patch-", dir=temporary_folder) as folder:
        own = await git.create_own(folder, workspace, commit, os.path.join(workspace, ".git", "objects"))
        await own.stage_changes()
        return await own.diff_index(commit)


class WorkspaceSnapshot:
    """A folder without a repository as it was, in a git directory beside it."""

    def __init__(self, own: OwnRepository, tree: str) -> None:
        self._own = own
        self._tree = tree

    @classmethod
    async def create(cls, git: Git, workspace: str, folder: str) -> WorkspaceSnapshot:
        """Remember a workspace in a folder that does not exist; ignored files are left out. Raises `GitError`."""
        own = await git.create_empty_own(folder, workspace)
        await own.stage_changes()
        return cls(own, await own.write_tree())

    async def make_patch(self) -> bytes:
        """What has changed since then, and forget the snapshot; raises `GitError`."""
        try:
            await self._own.stage_changes()
            return await self._own.diff_index(self._tree)
        finally:
            await asyncio.to_thread(remove_folder, self._own.folder)


class Workspaces:
    """Creates workspaces; `cache` is the folder of mirrors, `batch` the id of the batch."""

    def __init__(self, cache: str, batch: str, git: Git) -> None:
        self._cache = cache
        self._batch = batch
        self._git = git

    async def create_workspace(
        self, wanted: Workspace | None, path: str, leave_out: str, commit: str | None = None
    ) -> str | None:
        """Create a workspace at a path that does not exist; returns its commit, if it has one.

        `commit` was decided before the batch started. The folder `leave_out` is not copied: the results may be inside
        the folder that is copied.
        """
        if wanted is None or wanted.url is not None:
            # What a task on another machine has here stays empty.
            os.mkdir(path)
            return None
        if wanted.folder is not None:
            await asyncio.to_thread(copy_folder, wanted.folder, path, leave_out)
            return None
        assert wanted.git is not None
        mirror, commit = await self._fetch_and_resolve(wanted.git, commit or wanted.revision)
        await self._check_out(wanted.git, mirror, commit, path)
        return commit

    async def _check_out(self, git: str, mirror: str, commit: str, path: str) -> None:
        run = self._git.run
        # With hard links, a task could change the files of the mirror, and of the repository that it was cloned from.
        await self._git.copy_from_repository("clone", "--quiet", "--no-checkout", "--no-hardlinks", mirror, path)
        await run("remote", "set-url", "origin", git, cwd=path)
        await run("checkout", "--quiet", "--detach", commit, cwd=path)
        if _exists(os.path.join(path, ".gitmodules")):
            allowed = LOCAL_SUBMODULES if is_local_repository(git) else ()
            await run(*allowed, "submodule", "--quiet", "update", "--init", "--recursive", cwd=path)

    async def has_commit(self, git: str, revision: str | None) -> bool:
        """Whether the mirror of a repository has a commit; makes no connection."""
        mirror = self._mirror_path(git)
        return _exists(mirror) and await self._has_commit_in(mirror, revision)

    async def fetch_commit(self, git: str, revision: str | None) -> str:
        """The current commit of a revision, which is then also in the mirror."""
        async with self._locked_mirror(git) as mirror:
            await self._update_mirror(git, mirror, revision)
            return await self._resolve_commit(mirror, git, revision)

    async def resolve_local_commit(self, folder: str, git: str, revision: str | None) -> str:
        return await self._resolve_commit(folder, git, revision)

    def _mirror_path(self, git: str) -> str:
        return os.path.join(self._cache, f"{hashlib.sha256(git.encode()).hexdigest()[:24]}.git")

    @asynccontextmanager
    async def _locked_mirror(self, git: str) -> AsyncIterator[str]:
        """The mirror of a repository, locked against changes by other processes."""
        make_private_folder(self._cache)
        mirror = self._mirror_path(git)
        async with _file_lock(f"{mirror.removesuffix('.git')}.lock"):
            yield mirror

    async def _fetch_and_resolve(self, git: str, revision: str | None) -> tuple[str, str]:
        """Returns the mirror of a repository and the commit of a revision for this batch, fetched if it is not known
        yet.
        """
        asked = hashlib.sha256((revision or "HEAD").encode()).hexdigest()[:16]
        known = os.path.join(self._mirror_path(git), "pigeon", f"{self._batch}-{asked}")
        if commit := _read_known_commit(known):
            return self._mirror_path(git), commit
        async with self._locked_mirror(git) as mirror:
            if commit := _read_known_commit(known):
                return mirror, commit
            await self._update_mirror(git, mirror, revision)
            commit = await self._resolve_commit(mirror, git, revision)
            await self._git.run("update-ref", f"{KEPT_REFS}{commit}", commit, cwd=mirror)
            os.makedirs(os.path.dirname(known), exist_ok=True)
            await asyncio.to_thread(replace_file_atomically, known, commit.encode("ascii"), 0o644)
            return mirror, commit

    async def _update_mirror(self, git: str, mirror: str, revision: str | None) -> None:
        run = self._git.run
        copy = self._git.copy_from_repository if is_local_repository(git) else run
        there = (f"--git-dir={mirror}",)
        if not _exists(mirror):
            half = f"{mirror}.half"
            await asyncio.to_thread(remove_folder, half)
            await copy("clone", "--quiet", "--mirror", "--no-hardlinks", git, half)
            os.rename(half, mirror)
        elif not is_whole_hash(revision) or not await self._has_commit_in(mirror, revision):
            # A full commit hash never changes; anything else may have moved.
            refs = ("+refs/*:refs/*", f"^{KEPT_REFS}*")
            await copy(*there, "fetch", "--quiet", "--prune", "--force", "origin", *refs)
            with suppress(GitError):
                head = await copy(*there, "ls-remote", "--symref", "origin", "HEAD")
                await run("symbolic-ref", "HEAD", head.split()[1], cwd=mirror)
        if is_whole_hash(revision) and not await self._has_commit_in(mirror, revision):
            # No branch contains it any more. Most servers still provide it; otherwise it is reported as missing.
            with suppress(GitError):
                await copy(*there, "fetch", "--quiet", "origin", revision)

    async def _has_commit_in(self, mirror: str, revision: str | None) -> bool:
        try:
            await self._git.read_repository(mirror, "cat-file", "-e", f"{revision}^{{commit}}")
        except GitError:
            return False
        return True

    async def _resolve_commit(self, mirror: str, git: str, revision: str | None) -> str:
        for candidate in (revision or "HEAD", f"refs/remotes/origin/{revision}"):
            with suppress(GitError):
                return await self._git.read_repository(
                    mirror, "rev-parse", "--verify", "--quiet", f"{candidate}^{{commit}}"
                )
        if revision is None:
            raise WorkspaceError(f"{git} has no commit")
        raise WorkspaceError(f'{git} has no revision "{revision}"')


def _read_known_commit(path: str) -> str | None:
    with suppress(FileNotFoundError), open(path, encoding="ascii") as file:
        return file.read()
    return None


def _exists(path: str) -> bool:
    return os.path.exists(path)


def is_whole_hash(revision: str | None) -> TypeGuard[str]:
    """Whether it is a full commit hash, which never moves."""
    return revision is not None and len(revision) in (40, 64) and not set(revision) - set("0123456789abcdef")


@asynccontextmanager
async def _file_lock(path: str) -> AsyncIterator[None]:
    """Hold a lock against other processes of this machine; the lock ends with the process."""
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

    def names_to_ignore(folder: str, names: Sequence[str]) -> set[str]:
        found = set()
        with os.scandir(folder) as entries:
            for entry in entries:
                kind = entry.stat(follow_symlinks=False).st_mode
                is_plain = stat.S_ISREG(kind) or stat.S_ISDIR(kind) or stat.S_ISLNK(kind)
                if not is_plain or (stat.S_ISDIR(kind) and os.path.realpath(entry.path) == left_out):
                    found.add(entry.name)
        return found

    try:
        shutil.copytree(source, path, symlinks=True, ignore=names_to_ignore)
    except shutil.Error as error:
        first = error.args[0][0] if error.args and error.args[0] else (source, "", str(error))
        raise WorkspaceError(f"{first[0]} cannot be copied: {first[2]}") from None
    except OSError as error:
        raise WorkspaceError(f"{error.filename or source} cannot be copied: {error.strerror or error}") from None
    # The copy must be writable, even if the folder was not.
    os.chmod(path, os.stat(path).st_mode | stat.S_IRWXU)


def remove_folder(path: str) -> None:
    """Remove a folder with everything in it, including read-only folders; missing files are no error."""

    def make_writable_and_retry(function: Callable[..., Any], name: str, caught: Any) -> None:
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
    shutil.rmtree(path, onerror=make_writable_and_retry)


def rename_for_removal(path: str) -> str:
    """Rename a folder so that it can no longer become a result; returns the new path.

    A process of a killed driver may still work in it, and must not commit what is left while it is being removed.
    """
    taken = os.path.join(os.path.dirname(path), f"{OLD}{os.path.basename(path).lstrip('.')}-{os.urandom(4).hex()}")
    os.rename(path, taken)
    return taken
