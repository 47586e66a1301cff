"""Finds the commit of each revision, once for a batch and before anything starts.

All tasks start from the commit that was found then, on any machine and after any restart. A local repository is asked
directly. A server is asked for its refs, which takes one short connection; a revision that is not a ref (a commit,
`main~3`) is looked up in the clone from which tasks get their copies.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable

from msgspec import Struct, field, structs

from pigeon.frontends.batch.places.workspaces import WorkspaceError, Workspaces, is_whole_hash
from pigeon.frontends.batch.records import TaskSpec, Workspace
from pigeon.frontends.batch.task_files import is_local_repository
from pigeon.system.git import Git, GitError, GitTookTooLong

ASK_SECONDS = 60.0
AT_ONCE = 16
WATCH_SECONDS = 1.0
# How many lines are named for a revision that does not exist; the rest are only counted.
MOST_PLACES = 20
# Where git looks for a name, in its order.
_REFS = ("{}", "refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/origin/{}")
Pair = tuple[str, str | None]
LookupWatch = Callable[[int, int], None]


class _Asked(Struct):
    """A requested revision with the places of its tasks, and the commit once found."""

    places: list[str] = field(default_factory=list)
    count: int = 0
    commit: str | None = None


class MissingRevision(Struct, frozen=True):
    """A revision that was not found, why, how many tasks need it, and the places of the first of them."""

    places: list[str]
    count: int
    reason: str


class Revisions:
    """The commits of all tasks: call `add_workspace` for each task, then `resolve_commits` once, then `pin_commit`.
    `known` are the tasks of a resumed batch, whose commits stay. A task from an older version has none and gets
    none,     since that would make it another task. `is_elsewhere` means that tasks run on other machines, which
    may reach what     this one cannot: then a full commit hash is accepted unchecked.
    """

    def __init__(
        self,
        git: Git,
        workspaces: Workspaces,
        known: Iterable[TaskSpec],
        is_elsewhere: bool,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self._git = git
        self._workspaces = workspaces
        self._is_elsewhere = is_elsewhere
        self._ask_seconds = ask_seconds
        self._known: dict[Pair, str | None] = {}
        for spec in known:
            if spec.workspace is not None and spec.workspace.git is not None:
                self._known.setdefault((spec.workspace.git, spec.workspace.revision), spec.commit)
        self._asked: dict[Pair, _Asked] = {}
        self._silent: set[str] = set()

    def add_workspace(self, workspace: Workspace | None, place: str) -> None:
        """Add a task, with its workspace and its place in the file."""
        if workspace is None or workspace.git is None:
            return
        asked = self._asked.setdefault((workspace.git, workspace.revision), _Asked())
        asked.count += 1
        if len(asked.places) < MOST_PLACES:
            asked.places.append(place)

    @property
    def has_repositories(self) -> bool:
        """Whether any task has a repository."""
        return bool(self._asked)

    def pin_commit(self, spec: TaskSpec) -> TaskSpec:
        """A task with its commit, once all were looked up."""
        if spec.workspace is None or spec.workspace.git is None:
            return spec
        return structs.replace(spec, commit=self._asked[spec.workspace.git, spec.workspace.revision].commit)

    async def resolve_commits(self, watch: LookupWatch = lambda _found, _total: None) -> list[MissingRevision]:
        """Find all commits; returns the revisions that were not found.

        `watch` is called every second with the numbers of finished and of all look-ups.
        """
        turns = asyncio.Semaphore(AT_ONCE)
        ended = 0

        async def resolve_one(pair: Pair, asked: _Asked) -> MissingRevision | None:
            nonlocal ended
            async with turns:
                try:
                    asked.commit = await self._find_commit(*pair)
                except GitError as error:
                    return MissingRevision(asked.places, asked.count, str(error))
                finally:
                    ended += 1
                return None

        async def report_progress() -> None:
            while True:
                watch(ended, len(unknown))
                await asyncio.sleep(WATCH_SECONDS)

        unknown = []
        for pair, asked in self._asked.items():
            if pair in self._known:
                asked.commit = self._known[pair]
            else:
                unknown.append(resolve_one(pair, asked))
        telling = asyncio.ensure_future(report_progress())
        try:
            return [found for found in await asyncio.gather(*unknown) if found is not None]
        finally:
            telling.cancel()

    async def _find_commit(self, git: str, revision: str | None) -> str:
        if is_local_repository(git):
            return await self._resolve_in_local_repository(git, revision)
        if is_whole_hash(revision) and (self._is_elsewhere or await self._workspaces.has_commit(git, revision)):
            return revision
        commit = await self._resolve_on_server(git, revision)
        if commit is not None:
            return commit
        try:
            return await self._workspaces.fetch_commit(git, revision)
        except GitError as error:
            raise WorkspaceError(f"{_faulty_field(revision)}: {error}") from None

    async def _resolve_in_local_repository(self, git: str, revision: str | None) -> str:
        if not _is_folder(git):
            raise WorkspaceError(f'"workspace.git": {git} is not a folder')
        try:
            await self._git.read_repository(git, "rev-parse", "--git-dir")
        except GitError as error:
            raise WorkspaceError(f'"workspace.git": {git}: {error}') from None
        try:
            return await self._workspaces.resolve_local_commit(git, git, revision)
        except GitError as error:
            raise WorkspaceError(f"{_faulty_field(revision)}: {error}") from None

    async def _resolve_on_server(self, git: str, revision: str | None) -> str | None:
        """The commit of a ref on the server, or None if there is no such ref."""
        host, called = host_of(git), f'"workspace.git": {hide_credentials(git)}'
        if host in self._silent:
            raise WorkspaceError(f"{called}: {host} does not answer. Try again when it does")
        # An annotated tag is not the commit itself; git lists the commit separately.
        names = [f"{one.format(revision or 'HEAD')}{end}" for one in _REFS for end in ("^{}", "")]
        try:
            listed = await self._git.run("ls-remote", "--quiet", git, *names, seconds=self._ask_seconds)
        except GitTookTooLong:
            self._silent.add(host)
            raise WorkspaceError(
                f"{called}: {host} did not answer within {self._ask_seconds:g} s. Try again when it does"
            ) from None
        except GitError as error:
            raise WorkspaceError(
                f"{called} cannot be read: {error}. Try: git ls-remote {hide_credentials(git)}"
            ) from None
        refs = {name: commit for commit, _, name in (line.partition("\t") for line in listed.splitlines())}
        return next((refs[name] for name in names if name in refs), None)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)


def host_of(git: str) -> str:
    authority = (git.partition("://")[2] or git).partition("/")[0]
    return authority.rpartition("@")[2].partition(":")[0] or git


def hide_credentials(git: str) -> str:
    """An address without its password or token, for messages."""
    return re.sub(r"(https?://)[^/@]+@", r"\1***@", git)


def _faulty_field(revision: str | None) -> str:
    return '"workspace.git"' if revision is None else '"workspace.revision"'
