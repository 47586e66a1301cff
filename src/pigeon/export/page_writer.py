"""Sessions as pages and trajectories: connects the lines of a session with the renderers.

The host's `export_html` and the option `--export` write their pages here, so both name and place them alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pigeon.session.checkpoints import RecordedChanges
from pigeon.session.history.entry_line import EntryLine, line_from_bytes
from pigeon.session.history.reading import LoadedSession, load_session
from pigeon.session.history.session_folders import SessionFolders
from pigeon.session.history.views import session_name_of, stats_of, usage_of
from pigeon.system.environment import Environment
from pigeon.system.files import create_or_replace_file
from pigeon.system.paths import expand_home
from pigeon.wire import codec
from pigeon.wire.answers import BranchInfo, FoundText, HtmlPiece
from pigeon.wire.commands import ChangedFile, RenderHtml
from pigeon.wire.errors import Refusal, StartupError
from pigeon.wire.messages import AssistantMessage

if TYPE_CHECKING:
    from pigeon.export.agent_sessions import LoadedAgent
    from pigeon.export.markdown import TextFormatter
    from pigeon.providers.explanations import KeyOrigin

_AT_ONCE = 1 << 20
Mask = Callable[[bytes], bytes]


class NothingSaid(StartupError):
    """A session has nothing to export."""


class PageWriter:
    """Writes pages; a relative path begins in the folder of the environment."""

    def __init__(
        self,
        environment: Environment,
        store: SessionFolders,
        mask: Mask,
        mask_shapes: bool = True,
        origin_of_key: Callable[[str], KeyOrigin] | None = None,
    ) -> None:
        """`mask` takes the agent's keys out of the page: the session may be older than the masking of what is kept.

        With `mask_shapes` everything is masked that looks like a secret. `origin_of_key` tells where the key of a
        provider comes from, for failures that are shown to the user; pages that are written to a file do not say it.
        """
        self._origin_of_key = origin_of_key
        self._environment = environment
        self._store = store
        self._mask_keys = mask
        self._mask_shapes = mask_shapes

    def write_page(self, asked: str, file: str, every: list[bytes], branch: list[bytes]) -> str:
        """Write the page of a session and return its path as requested.

        Without a path its name is that of the session's file, as hosts of the family expect. Runs in a thread: so it
        gets raw lines, because the records behind them belong to the event loop.
        """
        active = [line.id for line in map(line_from_bytes, branch) if line is not None]
        lines = [line for line in map(line_from_bytes, every[1:]) if line is not None]
        return self._mask_and_write_page(asked, file, every[0], lines, active)

    def write_page_of_file(self, file: str, asked: str = "", by_title: bool = False) -> str:
        """Write the page of a session file and return its path; the branch of its last entry is the active one.

        With `by_title` a page without a path is named after the title of the session, for people.
        """
        file, loaded = self._load_file(file)
        return self._mask_and_write_page(
            asked, file, loaded.header_line, loaded.lines, _list_branch_ids(loaded.lines), by_title
        )

    def write_trajectory(self, file: str, asked: str = "", leaf: str = "") -> str:
        """Write the trajectory of a session file and return its path."""
        file, loaded = self._load_file(file)
        lines = list(self._mask_lines(loaded.lines))
        if leaf and leaf not in {line.id for line in lines}:
            raise StartupError(f"There is no entry {leaf} in {file}")
        branch = _list_branch_ids(lines, leaf)
        called = expand_home(asked, self._environment.home) or f"{self._name_of(file)}.atif.json"
        path = self._environment.absolute_path(called)
        document = _trajectory_of(lines, branch, codec.decode(self._mask(loaded.header_line)), path)
        if document is None:
            raise NothingSaid(f"{file} has no messages, so there is no trajectory")
        self._add_agent_trajectories(document, self._load_agents(file, lines), path)
        from pigeon.export.html import write_page

        write_page(path, [self._mask_keys(codec.encode(document)), b"\n"], protected=file, called=called)
        return called

    def _add_agent_trajectories(self, document: dict[str, Any], agents: list[LoadedAgent], path: str) -> None:
        """Add the trajectories of the agents that were started in a session to its own."""
        from pigeon.export.trajectory import add_trajectories_of_agents

        made = [self._make_agent_trajectory(agent, path) for agent in agents]
        add_trajectories_of_agents(document, [one for one in made if one is not None])

    def _make_agent_trajectory(self, agent: LoadedAgent, path: str) -> dict[str, Any] | None:
        """The trajectory of one agent; its images are beside those of the session, under names of their own."""
        header = codec.decode(self._mask(agent.header_line))
        branch = _list_branch_ids(agent.lines)
        known = codec.to_plain(agent.info)
        extra = {name: known[name] for name in ("agent", "title", "status", "depth", "parentAgentId") if name in known}
        made = _trajectory_of(agent.lines, branch, header, path, f"{agent.info.agent_id}-", extra)
        if made is not None:
            self._add_agent_trajectories(made, agent.agents, path)
        return made

    def _load_agents(self, file: str, lines: list[EntryLine]) -> list[LoadedAgent]:
        from pigeon.export.agent_sessions import load_agents

        return load_agents(file, lines, lambda own: list(self._mask_lines(own)))

    def _load_file(self, file: str) -> tuple[str, LoadedSession]:
        file = self._environment.absolute_path(file)
        try:
            loaded = load_session(file)
        except Refusal as error:
            raise StartupError(str(error)) from None
        if loaded is None:
            raise StartupError(f"File not found: {file}")
        return file, loaded

    def render_pieces(
        self, start: int, window: list[bytes], labels: list[bytes], previous: bytes | None, running: bool, source: bool
    ) -> tuple[list[HtmlPiece], int]:
        """Consecutive entries as HTML, and how many of them will not change any more; runs in a thread, like
        `write`."""
        from pigeon.export.live import attach_markdown_sources, find_unsettled_index, render_pieces_of

        lines = self._parse_and_mask_lines(window)
        marks = self._parse_and_mask_lines(labels)
        before = self._parse_and_mask_lines([] if previous is None else [previous])
        settled = find_unsettled_index(lines) if running else len(lines)
        pieces = render_pieces_of(
            lines, start, settled, self._make_formatter(), marks, before[0] if before else None, self._explain_answer
        )
        return (attach_markdown_sources(pieces, lines) if source else pieces), settled

    def _explain_answer(self, message: AssistantMessage) -> str:
        from pigeon.providers.explanations import explain_answer

        return explain_answer(message, self._origin_of_key and self._origin_of_key(message.provider))

    def render_html(self, asked: RenderHtml) -> str:
        """One text as HTML; runs in a thread."""
        from pigeon.export.live import render_requested_html

        masked = codec.convert(codec.decode(self._mask(codec.encode(asked))), RenderHtml)
        return render_requested_html(masked, self._make_formatter())

    def find_text(self, branch: list[bytes], text: str, most: int) -> tuple[list[FoundText], bool]:
        """The places of a text, newest first, and whether there are more; runs in a thread."""
        from pigeon.export.live import find_entries_with_text

        return find_entries_with_text(self._parse_and_mask_lines(branch), text, most)

    def list_branches(self, every: list[bytes], branch: list[str]) -> list[BranchInfo]:
        """The branches of a session; runs in a thread."""
        from pigeon.export.live import list_branches

        return list_branches(self._parse_and_mask_lines(every), branch)

    def list_changes(
        self, branch: list[bytes], cwd: str, path: str | None, as_html: bool, recorded: RecordedChanges | None
    ) -> list[ChangedFile]:
        """The changes of a branch to files; runs in a thread."""
        from pigeon.export.recorded_changes import list_recorded_files
        from pigeon.export.session_changes import FileNames, find_file_entries, list_changed_files

        lines = [line for line in map(line_from_bytes, branch) if line is not None]
        names = FileNames(cwd, self._environment.home)
        needed = find_file_entries(lines, names, recorded)
        masked = self._mask_lines([line for line in lines if line.id in needed])
        formatter = self._make_formatter() if as_html else None
        rows = list_changed_files(masked, names, path, formatter)
        if recorded is not None:
            only = None if path is None else names.name_of(path)
            rows = list_recorded_files(recorded, only, self._mask_text, formatter, rows)
        return rows

    def _parse_and_mask_lines(self, raw: list[bytes]) -> list[EntryLine]:
        return list(self._mask_lines([line for line in map(line_from_bytes, raw) if line is not None]))

    def _make_formatter(self) -> TextFormatter:
        from pigeon.export.markdown import TextFormatter

        return TextFormatter(self._mask_text)

    def _mask_and_write_page(
        self, asked: str, file: str, head: bytes, lines: list[EntryLine], active: list[str], by_title: bool = False
    ) -> str:
        from pigeon.export.html import AgentSection, SessionPage, write_page

        header = codec.decode(self._mask(head))
        lines = list(self._mask_lines(lines))
        stats = stats_of(str(header.get("id", "")), file, lines)
        agents = [
            AgentSection(one.info, one.lines, _list_branch_ids(one.lines))
            for agent in self._load_agents(file, lines)
            for one in agent.list_all()
        ]
        page = SessionPage(header, lines, active, stats, session_name_of(lines), agents)
        default = page.make_file_name() if by_title else f"{self._name_of(file)}.html"
        path = expand_home(asked, self._environment.home) or default
        blocks = _join_pieces(page.render_pieces(self._make_formatter()))
        write_page(self._environment.absolute_path(path), map(self._mask_keys, blocks), protected=file, called=path)
        return path

    def _mask_lines(self, lines: list[EntryLine]) -> Iterator[EntryLine]:
        """The lines without secrets, before they are rendered: tags that colour a text would stand inside of them.

        Many lines are searched together, and only those with a match one by one.
        """
        for batch in _split_into_batches(lines):
            together = b"\n".join([line.raw for line in batch])
            if self._mask(together) == together:
                yield from batch
            else:
                yield from (line for line in map(self._mask_line, batch) if line is not None)

    def _mask_line(self, line: EntryLine) -> EntryLine | None:
        masked = self._mask(line.raw)
        return line if masked == line.raw else line_from_bytes(masked)

    def _mask(self, data: bytes) -> bytes:
        if self._mask_shapes:
            from pigeon.secrets.shapes import mask_secret_shapes

            data = mask_secret_shapes(data)
        return self._mask_keys(data)

    def _mask_text(self, text: str) -> str:
        return self._mask(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _name_of(self, file: str) -> str:
        return f"pigeon-session-{self._store.name_of(file)}"


def _trajectory_of(
    lines: list[EntryLine],
    branch: list[str],
    header: dict[str, Any],
    path: str,
    prefix: str = "",
    more: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any] | None:
    """The document, with its images in a folder beside its `path`; None if the session has no messages. `prefix` begins
    the names of the images, `more` goes into `extra`."""
    from pigeon import __version__
    from pigeon.export.trajectory import Trajectory, TrajectoryAgent, sum_final_metrics

    images = f"{path.removesuffix('.json')}-images"

    def write_image_file(name: str, data: bytes) -> str | None:
        with suppress(FileExistsError):
            os.mkdir(images, 0o700)
        create_or_replace_file(os.path.join(images, prefix + name), data, 0o600)
        return f"{os.path.basename(images)}/{prefix}{name}"

    made = Trajectory(write_image_file)
    by_id = {line.id: line for line in lines}
    for line in (by_id[id] for id in branch):
        entry = line.parse_uncached()
        if entry is not None:
            made.add(entry)
    if made.is_empty:
        return None
    entries = (entry for entry in (line.parse_uncached() for line in lines) if entry is not None)
    billed = (usage for usage in map(usage_of, entries) if usage is not None)
    above = {line.parent_id for line in lines}
    others = [line.id for line in lines if line.id not in above and line.id not in set(branch)]
    extra = {"name": session_name_of(lines), "leaf_id": branch[-1], "other_leaf_ids": others}
    known = {**{key: value for key, value in extra.items() if value}, **more}
    return made.build_document(header, TrajectoryAgent("pigeon", __version__), sum_final_metrics(billed), known)


def _list_branch_ids(lines: list[EntryLine], leaf: str = "") -> list[str]:
    """The ids from the beginning to an entry, oldest first; without one, to the last."""
    by_id = {line.id: number for number, line in enumerate(lines)}
    found: list[str] = []
    at = by_id.get(leaf, len(lines) - 1)
    while at >= 0:
        found.append(lines[at].id)
        above = by_id.get(lines[at].parent_id or "", -1)
        at = above if above < at else -1
    return found[::-1]


def _split_into_batches(lines: list[EntryLine]) -> Iterator[list[EntryLine]]:
    batch: list[EntryLine] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line.raw)
        if size >= _AT_ONCE:
            yield batch
            batch, size = [], 0
    yield batch


def _join_pieces(pieces: Iterable[str]) -> Iterator[bytes]:
    """Larger pieces as UTF-8: each is searched for secrets, which is faster for few of them."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _AT_ONCE:
            yield "".join(waiting).encode("utf-8", "replace")
            waiting, size = [], 0
    yield "".join(waiting).encode("utf-8", "replace")
