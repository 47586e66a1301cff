"""Worktrees: an agent works in a copy of the repository, and its changes are a commit on a branch of its own.

The user's repository is written with plumbing only: a worktree without a checkout, objects, refs and index entries.
Everything that reads or writes files goes through a git directory of Pigeon's own (`OwnRepository`), so that nothing
in the repository, nor what an agent has left in its copy, names a program that git runs.

    FOLDER/NAME         the copy, where the agent works
    FOLDER/NAME.git     our git directory for it
    FOLDER/NAME.json    whose copy it is, from before it exists until after it is removed; locked by its process

A copy whose process has died is found by its unlocked note: what the agent had changed is committed on its branch, and
the copy is removed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from pigeon.subagents.results import Worktree
from pigeon.system.append_file import make_private_folder
from pigeon.system.git import Git, GitError, OwnRepository
from pigeon.wire import codec
from pigeon.wire.agents import AgentMerged
from pigeon.wire.errors import BadRecord, Refusal

BRANCHES = "pigeon"
NO_REPOSITORY = 'isolation "worktree" needs a git repository, and {} is in none'
NO_COMMIT = 'isolation "worktree" needs a repository with a commit, and {} has none yet'
MESSAGE = "Work of the agent {}"
_NOBODY = ("Pigeon", "pigeon@localhost")


class Note(Struct, frozen=True):
    """Whose copy it is: the repository's common git directory, the branch, and the commit that it began with."""

    repository: str
    branch: str
    base: str
    agent: str


class Repository(Struct, frozen=True):
    """The repository around a folder: its common git directory, its top folder, the folder below that, its commit."""

    common: str
    top: str
    prefix: str
    head: str

    @property
    def objects(self) -> str:
        return os.path.join(self.common, "objects")


class AgentWorktree:
    """The copy that one agent works in."""

    def __init__(
        self, git: Git, repository: Repository, folder: str, note: Note, own: OwnRepository, lock: int
    ) -> None:
        self._git = git
        self._repository = repository
        self._folder = folder
        self._note = note
        self._own = own
        self._lock = lock

    @property
    def folder(self) -> str:
        return self._folder

    @property
    def cwd(self) -> str:
        """Where in the copy the agent works: the place of the conversation's folder."""
        return os.path.join(self._folder, self._repository.prefix).rstrip("/")

    async def finish(self) -> tuple[Worktree, list[str]]:
        """Commit what was changed, remove the copy; returns where the changes are, and which files they are about."""
        try:
            files = await commit_changes(self._git, self._own, self._note)
            await remove_copy(self._git, self._folder, self._note)
        finally:
            os.close(self._lock)
        return Worktree(None, self._note.branch if files else None), files


class Worktrees:
    """Makes copies below one folder of the user's cache, and removes those that were left behind."""

    def __init__(self, git: Git, folder: str) -> None:
        self._git = git
        self._folder = folder

    async def create(self, cwd: str, agent_id: str, agent: str) -> AgentWorktree:
        """A copy for an agent, from the last commit, or from the branch that it worked on before; raises `Refusal`."""
        repository = await find_repository(self._git, cwd)
        name = f"{_plain_name(agent)}-{agent_id[-12:]}"
        branch = f"{BRANCHES}/{name}"
        folder = os.path.join(self._folder, name)
        known = await find_commit(self._git, repository.common, f"refs/heads/{branch}")
        note = Note(repository.common, branch, repository.head, agent)
        make_private_folder(self._folder)
        lock = write_note(f"{folder}.json", note)
        try:
            return await self._check_out(repository, folder, note, known or repository.head, lock)
        except GitError as error:
            with suppress(GitError, OSError):
                await remove_copy(self._git, folder, note)
            os.close(lock)
            raise Refusal(f"The worktree for the agent cannot be made: {error}") from None

    async def _check_out(
        self, repository: Repository, folder: str, note: Note, commit: str, lock: int
    ) -> AgentWorktree:
        git, common = self._git, repository.common
        if commit == note.base:
            await git.change_repository("/", f"--git-dir={common}", "branch", "--no-track", note.branch, commit)
        await git.change_repository(
            "/", f"--git-dir={common}", "worktree", "add", "--quiet", "--force", "--no-checkout", folder, note.branch
        )
        own = await git.create_own(f"{folder}.git", folder, commit, repository.objects)
        await own.run("checkout-index", "--all", "--force")
        # The index that commands in the copy see; filling it runs nothing.
        linked = os.path.join(common, "worktrees", os.path.basename(folder))
        with suppress(GitError):
            await git.change_repository("/", f"--git-dir={linked}", "read-tree", commit)
        os.makedirs(os.path.join(folder, repository.prefix), exist_ok=True)
        return AgentWorktree(git, repository, folder, note, own, lock)

    async def remove_leftovers(self, cwd: str) -> list[str]:
        """Commit and remove the copies of this repository whose process has died; returns a sentence for each."""
        notes = await asyncio.to_thread(self._list_abandoned)
        if not notes:
            return []
        try:
            repository = await find_repository(self._git, cwd)
        except Refusal:
            for _, _, lock in notes:
                os.close(lock)
            return []
        told: list[str] = []
        for folder, note, lock in notes:
            try:
                if note.repository == repository.common:
                    told.append(await self._rescue(repository, folder, note))
            finally:
                os.close(lock)
        return told

    async def _rescue(self, repository: Repository, folder: str, note: Note) -> str:
        lead = f"The process of the agent {note.agent} has died"
        try:
            if await asyncio.to_thread(_has_copy, folder):
                base = await find_commit(self._git, note.repository, f"refs/heads/{note.branch}") or note.base
                await asyncio.to_thread(_remove_folders, f"{folder}.git")
                own = await self._git.create_own(f"{folder}.git", folder, base, repository.objects)
                await commit_changes(self._git, own, note)
            await remove_copy(self._git, folder, note)
        except (GitError, OSError) as error:
            return f"{lead}, and its worktree {folder} could not be removed: {error}"
        kept = await find_commit(self._git, note.repository, f"refs/heads/{note.branch}")
        return f"{lead}; its work is on the branch {note.branch}" if kept else f"{lead}; it had changed nothing"

    def _list_abandoned(self) -> list[tuple[str, Note, int]]:
        """The copies with an unlocked note, which is locked from here on."""
        found: list[tuple[str, Note, int]] = []
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return []
        for name in names:
            if not name.endswith(".json"):
                continue
            path = os.path.join(self._folder, name)
            taken = take_note(path)
            if taken is not None:
                found.append((path.removesuffix(".json"), *taken))
        return found

    async def merge(self, cwd: str, agent_id: str, agent: str) -> AgentMerged:
        """Merge the branch of an agent that has ended into the folder of the conversation; raises `Refusal`."""
        repository = await find_repository(self._git, cwd)
        branch = f"{BRANCHES}/{_plain_name(agent)}-{agent_id[-12:]}"
        theirs = await find_commit(self._git, repository.common, f"refs/heads/{branch}")
        if theirs is None:
            raise Refusal(
                f"The agent {agent_id} has no branch to merge: it did not work in a worktree, or changed nothing"
            )
        make_private_folder(self._folder)
        place = os.path.join(self._folder, f"merge-{os.getpid()}-{agent_id[-12:]}.git")
        try:
            return await merge_commit(self._git, repository, place, theirs, branch)
        except GitError as error:
            raise Refusal(f"{branch} cannot be merged: {error}") from None
        finally:
            await asyncio.to_thread(_remove_folders, place)


async def find_repository(git: Git, cwd: str) -> Repository:
    """The repository around a folder; raises `Refusal` if there is none, or none with a commit."""
    try:
        found = await git.read_repository(
            cwd, "rev-parse", "--path-format=absolute", "--git-common-dir", "--show-toplevel"
        )
        prefix = await git.read_repository(cwd, "rev-parse", "--show-prefix")
    except GitError as error:
        if "git cannot be run" in str(error):
            raise Refusal(f'isolation "worktree" needs git: {error}') from None
        raise Refusal(NO_REPOSITORY.format(cwd)) from None
    common, _, top = found.partition("\n")
    if not top:
        raise Refusal(NO_REPOSITORY.format(cwd))
    head = await find_commit(git, common, "HEAD", cwd)
    if head is None:
        raise Refusal(NO_COMMIT.format(top))
    return Repository(common, top, prefix.strip("\n").rstrip("/"), head)


async def find_commit(git: Git, common: str, name: str, cwd: str = "/") -> str | None:
    """The commit that a ref names, or None."""
    directory = () if cwd != "/" else (f"--git-dir={common}",)
    try:
        found = await git.read_repository(cwd, *directory, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except GitError:
        return None
    return found.strip() or None


async def commit_changes(git: Git, own: OwnRepository, note: Note) -> list[str]:
    """Put what is in the copy on its branch; returns the files that the branch changes since its beginning."""
    await own.stage_changes()
    tree = (await own.run("write-tree")).decode().strip()
    tip = await find_commit(git, note.repository, f"refs/heads/{note.branch}") or note.base
    before = (await own.run("rev-parse", f"{tip}^{{tree}}")).decode().strip()
    if tree != before:
        commit = await make_commit(git, own, note.repository, tree, [tip], MESSAGE.format(note.agent))
        await copy_commit(git, own, note.repository, commit, f"refs/heads/{note.branch}")
        tip = commit
    listed = await own.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", note.base, tip)
    return _split_names(listed)


async def make_commit(
    git: Git, own: OwnRepository, common: str, tree: str, parents: Sequence[str], message: str
) -> str:
    """A commit in the name of the user, as far as they have one."""
    name = await _read_setting(git, common, "user.name") or _NOBODY[0]
    email = await _read_setting(git, common, "user.email") or _NOBODY[1]
    person = ("-c", f"user.name={name}", "-c", f"user.email={email}", "-c", "commit.gpgSign=false")
    named = [word for parent in parents for word in ("-p", parent)]
    return (await own.run(*person, "commit-tree", *named, "-m", message, tree)).decode().strip()


async def copy_commit(git: Git, own: OwnRepository, common: str, commit: str, ref: str) -> None:
    """Copy a commit with its objects into the user's repository, under this ref."""
    passing = "refs/pigeon/passing"
    await own.run("update-ref", passing, commit)
    await asyncio.to_thread(_borrow_objects, own.folder, os.path.join(common, "objects"))
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
    await git.copy_from_repository(
        f"--git-dir={common}", "fetch", *options, "--force", "--update-head-ok", own.folder, f"{passing}:{ref}"
    )


async def remove_copy(git: Git, folder: str, note: Note) -> None:
    """Remove the copy and all that belongs to it; its branch stays if it has commits of its own."""
    await asyncio.to_thread(_remove_folders, folder, f"{folder}.git")
    with suppress(GitError):
        await git.change_repository("/", f"--git-dir={note.repository}", "worktree", "prune")
    if await find_commit(git, note.repository, f"refs/heads/{note.branch}") == note.base:
        await git.change_repository(
            "/", f"--git-dir={note.repository}", "update-ref", "-d", f"refs/heads/{note.branch}", note.base
        )
    with suppress(OSError):
        os.unlink(f"{folder}.json")


async def merge_commit(git: Git, repository: Repository, place: str, theirs: str, branch: str) -> AgentMerged:
    """Merge a commit into the checked-out branch, with its files and its index; with conflicts nothing changes."""
    ours = repository.head
    own = await git.create_own(place, repository.top, ours, repository.objects)
    base = (await own.run("merge-base", ours, theirs)).decode().strip()
    if base == theirs:
        return AgentMerged(merged=True, files=[])
    tree, conflicts = await _merge_trees(own, ours, theirs)
    if conflicts:
        return AgentMerged(merged=False, conflicts=conflicts)
    changed = _split_names(await own.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", ours, tree))
    dirty = await _find_unsaved(git, own, repository, changed, tree)
    if dirty:
        return AgentMerged(merged=False, conflicts=dirty)
    commit = theirs
    if base != ours:
        commit = await make_commit(git, own, repository.common, tree, [ours, theirs], f"Merge branch '{branch}'")
        await copy_commit(git, own, repository.common, commit, "refs/pigeon/merged")
    # First the index, which another program may have locked: then nothing has changed.
    await _write_index(git, own, repository, ours, tree)
    await _write_files(own, repository.top, ours, tree)
    await git.change_repository(repository.top, "update-ref", "-m", f"merge {branch}", "HEAD", commit, ours)
    with suppress(GitError):
        await git.change_repository(repository.top, "update-ref", "-d", "refs/pigeon/merged")
    return AgentMerged(merged=True, files=changed)


async def _merge_trees(own: OwnRepository, ours: str, theirs: str) -> tuple[str, list[str]]:
    """The merged tree, and the files in which both sides disagree."""
    output, is_clean = await own.try_run(
        "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs
    )
    tree, *names = output.decode("utf-8", "surrogateescape").split("\0")
    return tree.strip(), [] if is_clean else sorted({name for name in names if name})


async def _find_unsaved(
    git: Git, own: OwnRepository, repository: Repository, changed: Sequence[str], tree: str
) -> list[str]:
    """The files that the merge would write and that are not as in the last commit, nor as the merge would make them."""
    wanted = set(changed)
    await own.run("read-tree", repository.head)
    listed = await own.run("ls-files", "-z", "--modified", "--deleted", "--others")
    different = {name for name in _split_names(listed) if name in wanted}
    staged = await git.read_repository(
        repository.top, "diff-index", "--cached", "-z", "--name-only", "--no-renames", "--no-ext-diff", repository.head
    )
    different |= {name for name in staged.split("\0") if name in wanted}
    if different:
        await own.run("read-tree", tree)
        still = set(_split_names(await own.run("ls-files", "-z", "--modified", "--deleted")))
        different = {name for name in different if name in still or not _exists(repository.top, name)}
    return sorted(different)


async def _write_files(own: OwnRepository, top: str, ours: str, tree: str) -> None:
    """Bring the files that differ between two trees from the one to the other."""
    await own.run("read-tree", tree)
    gone = _split_names(
        await own.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=D", ours, tree)
    )
    written = await own.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=d", ours, tree)
    for name in gone:
        with suppress(OSError):
            os.unlink(os.path.join(top, name))
    if written:
        await own.run("checkout-index", "--force", "-z", "--stdin", stdin=written)


async def _write_index(git: Git, own: OwnRepository, repository: Repository, ours: str, tree: str) -> None:
    """The same for the entries of the user's index; the others stay as they are."""
    lines = (await own.run("diff-tree", "-r", "-z", "--no-renames", ours, tree)).split(b"\0")
    entries = b""
    for about, name in zip(lines[::2], lines[1::2], strict=False):
        _, mode, _, object_id, _ = about.decode().lstrip(":").split(" ")
        entries += f"{mode} {object_id}\t".encode() + name + b"\0"
    index = await git.read_repository(repository.top, "rev-parse", "--path-format=absolute", "--git-path", "index")
    await own.write_foreign_index(index.strip(), entries)


def write_note(path: str, note: Note) -> int:
    """Write and lock a note; returns the descriptor that holds the lock. Raises `Refusal` if the copy is in use."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, codec.encode(_to_plain(note)), 0)
    except OSError:
        os.close(descriptor)
        raise Refusal(f"The worktree of this agent is in use by another process: {path}") from None
    return descriptor


def take_note(path: str) -> tuple[Note, int] | None:
    """A note without a lock, locked from here on; None for any other."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        plain = codec.decode(os.pread(descriptor, 64 * 1024, 0))
        return Note(*(str(plain[name]) for name in Note.__struct_fields__)), descriptor
    except (OSError, BadRecord, KeyError, TypeError):
        os.close(descriptor)
        return None


def _to_plain(note: Note) -> dict[str, Any]:
    return {name: getattr(note, name) for name in Note.__struct_fields__}


async def _read_setting(git: Git, common: str, name: str) -> str:
    try:
        return (await git.run(f"--git-dir={common}", "config", "--get", name)).strip()
    except GitError:
        return ""


def _has_copy(folder: str) -> bool:
    return os.path.isdir(folder) and os.path.isdir(f"{folder}.git")


def _borrow_objects(folder: str, objects: str) -> None:
    """Let a git directory find objects of another one, also for git of the other side, which gets no variables."""
    with open(os.path.join(folder, "objects", "info", "alternates"), "w", encoding="utf-8") as file:
        file.write(objects + "\n")


def _remove_folders(*folders: str) -> None:
    for folder in folders:
        if os.path.islink(folder):
            os.unlink(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _split_names(listed: bytes) -> list[str]:
    return [name.decode("utf-8", "surrogateescape") for name in listed.split(b"\0") if name]


def _exists(top: str, name: str) -> bool:
    return os.path.lexists(os.path.join(top, name))


def _plain_name(agent: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in agent).strip("-")[:40] or "agent"
