"""The page of a session, made piece by piece, and the file it is written to.

The page loads nothing and runs nothing: its content security policy allows one style sheet, by its hash, and images
that are inside the page. The conversation comes first; details of the session are folded, and the list of prompts and
branches is beside the conversation if the screen is wide enough.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from pigeon.export.chart import Spent, chart_html, spent_of
from pigeon.export.entry_html import Item, conversation_html
from pigeon.export.escaping import escape_html, moment_html, to_plain_text
from pigeon.export.markdown import TextFormatter
from pigeon.export.style import CSS, style_hash
from pigeon.export.tree import BranchRow, Line, branches_of
from pigeon.system import files
from pigeon.system.extras import PACKAGE
from pigeon.wire.agents import AgentInfo
from pigeon.wire.answers import SessionStats
from pigeon.wire.base import Absent
from pigeon.wire.content import shorten_file_blocks, text_of
from pigeon.wire.entries import BranchSummaryEntry, CompactionEntry, Entry, LabelEntry, MessageEntry, UsageEntry
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage, UserMessage

LONGEST_TITLE = 100
LONGEST_FILE_NAME = 60
PRIVATE = 0o600
MONO = ' class="mono"'
_VIEWS = {"view-folded": "Folded", "view-open": "Everything open", "view-talk": "Without tools and thinking"}


class AgentSection(Struct, frozen=True):
    """The conversation of an agent that was started in a session: its entries, and those of its last branch."""

    info: AgentInfo
    lines: Sequence[Line]
    active: Sequence[str]


class SessionPage:
    """One session as a page: `title` is its title, `pieces` returns the page itself.

    `lines` are all entries in the order of the file, `active` the ids of the active branch, oldest first. `agents` are
    those that were started in it.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        lines: Sequence[Line],
        active: Sequence[str],
        stats: SessionStats,
        name: str | None = None,
        agents: Sequence[AgentSection] = (),
    ) -> None:
        self._header = header
        self._lines = lines
        self._agents = agents
        self._stats = stats
        self._branches = branches_of(lines, active)
        self._found = _summarize_entries(lines)
        self._forks: dict[int, list[BranchRow]] = {}
        for branch in self._branches[1:]:
            if branch.leaves is not None:
                self._forks.setdefault(branch.leaves, []).append(branch)
        said = (self._found.prompts[number] for number in self._branches[0].entries if number in self._found.prompts)
        self.title = to_one_line(name or next(said, "") or f"Session {header.get('id', '')}")

    def render_pieces(self, formatter: TextFormatter) -> Iterator[str]:
        """The page from its first line to its last; entries are read as they are needed, and not kept."""
        title = escape_html(self.title)
        yield (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_content_security_policy()}">'
            '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{CSS}</style></head>\n<body>"
            f'<a class="skip" href="#talk">Skip to the conversation</a>\n{_switches_html()}\n'
            f'<header class="top"><h1>{title}</h1><p>{self._summary_html()}</p></header>\n'
        )
        yield from self._contents_html()
        yield f'<main id="talk">\n{self._about_html()}\n'
        yield from self._conversation_html(self._branches[0], formatter)
        yield from self._other_branches_html(formatter)
        yield from self._agents_html(formatter)
        yield "</main>\n<footer>A Pigeon session"
        if formatter.left_plain:
            yield (
                f". It is long: {formatter.left_plain:,} of its texts are shown without formatting or colours, so that "
                "the page could be made in a few seconds"
            )
        if formatter.missing:
            # Not the command for this installation, which has its paths: pages are passed on.
            yield f". Its texts are shown without formatting and colours, which need {PACKAGE}[pages]"
        yield ".</footer>\n</body></html>\n"

    def make_file_name(self) -> str:
        """A name for the page's file that people recognize: the title and the end of the session's id."""
        words = re.findall(r"[^\W_]+", self.title.lower())
        name = "-".join(words)[:LONGEST_FILE_NAME].strip("-")
        id = re.sub(r"\W", "", str(self._header.get("id", "")))[-8:]
        return "-".join(part for part in ("pigeon", name, id) if part) + ".html"

    def _summary_html(self) -> str:
        stats, models = self._stats, self._found.models
        model = escape_html(next(iter(models), "").rpartition("/")[2])
        more = f" and {len(models) - 1} more" if len(models) > 1 else ""
        parts = [
            escape_html(str(self._header.get("timestamp", ""))[:10]),
            f"{model}{more}",
            f"{stats.total_messages:,} message{'' if stats.total_messages == 1 else 's'}",
            f"${stats.cost:,.2f}",
        ]
        return " · ".join(part for part in parts if part)

    def _about_html(self) -> str:
        stats, header = self._stats, self._header
        tokens = stats.tokens
        rows = [
            ("session", escape_html(str(header.get("id", ""))), True),
            ("began", moment_html(str(header.get("timestamp", ""))), False),
            ("folder", escape_html(str(header.get("cwd", ""))), True),
            ("forked from", escape_html(str(header.get("parentSession") or "")), True),
            ("models", "<br>".join(map(escape_html, self._found.models)), False),
            ("messages", f"{stats.total_messages:,} ({stats.user_messages:,} by the user)", False),
            ("branches", f"{len(self._branches):,}" if len(self._branches) > 1 else "", False),
            ("tool calls", f"{stats.tool_calls:,}", False),
            (
                "tokens",
                f"{tokens.input:,} in, {tokens.output:,} out, {tokens.cache_read:,} from cache, "
                f"{tokens.cache_write:,} to cache",
                False,
            ),
            ("cost", f"${stats.cost:,.4f}", False),
        ]
        shown = (f"<dt>{label}</dt><dd{MONO if mono else ''}>{value}</dd>" for label, value, mono in rows if value)
        return (
            '<details class="about"><summary>About this session</summary><div class="inner">'
            f"<dl>{''.join(shown)}</dl>{chart_html(self._found.spent)}</div></details>"
        )

    def _contents_html(self) -> Iterator[str]:
        """The user's prompts, the bookmarks and the other branches, as links; and the switches for readers."""
        found, active = self._found, self._branches[0]
        yield (
            '<nav class="side" aria-label="Contents"><label class="opens" for="contents">Contents</label>'
            '<div class="panel">'
        )
        yield from _list_html("Prompts", (self._link_to_prompt(n) for n in active.entries if n in found.prompts), "ol")
        marked = [n for n in active.entries if self._lines[n].id in found.labels and n not in found.prompts]
        yield from _list_html("Bookmarks", (_link_html(f"m{n}", "", found.labels[self._lines[n].id]) for n in marked))
        others = (_link_html(f"b{b.number}", self._branch_title(b), f"{b.number}") for b in self._branches[1:])
        yield from _list_html("Other branches", others)
        started = (_link_html(f"a{n}", _title_of_agent(one)) for n, one in enumerate(self._agents))
        yield from _list_html("Agents", started)
        options = "".join(f'<label for="{id}">{text}</label>' for id, text in _VIEWS.items())
        yield f'<div class="view"><h2>View</h2>{options}</div></div></nav>\n'

    def _link_to_prompt(self, number: int) -> str:
        return _link_html(f"m{number}", self._found.prompts[number], self._found.labels.get(self._lines[number].id, ""))

    def _conversation_html(self, branch: BranchRow, formatter: TextFormatter) -> Iterator[str]:
        items = ((number, self._read_item(number)) for number in branch.entries)
        for number, piece in conversation_html(items, formatter, self._found.labels):
            yield piece + "\n"
            if number in self._forks:
                links = (
                    f'<a href="#b{fork.number}">{escape_html(self._branch_title(fork))}</a>'
                    for fork in self._forks[number]
                )
                yield f'<p class="forks">Another branch leaves here: {", ".join(links)}</p>\n'

    def _other_branches_html(self, formatter: TextFormatter) -> Iterator[str]:
        if len(self._branches) > 1:
            yield "<h2>Other branches</h2>\n"
        for branch in self._branches[1:]:
            way = (
                "It has a beginning of its own."
                if branch.leaves is None
                else f'It leaves the conversation <a href="#m{branch.leaves}">here</a>.'
            )
            title = escape_html(self._branch_title(branch))
            yield (
                f'<details class="branch"><summary>Branch {branch.number}: {title}</summary>'
                f'<p class="note" id="b{branch.number}">{way}</p>\n'
            )
            yield from self._conversation_html(branch, formatter)
            yield "</details>\n"

    def _agents_html(self, formatter: TextFormatter) -> Iterator[str]:
        """The conversations of agents, folded; their entries are numbered on from those of the session."""
        if self._agents:
            yield "<h2>Agents</h2>\n"
        first = len(self._lines)
        for number, agent in enumerate(self._agents):
            info = agent.info
            about = f"{info.status} · ${info.usage.cost.total:,.4f} · depth {info.depth}"
            yield (
                f'<details class="branch"><summary>{escape_html(_title_of_agent(agent))}</summary>'
                f'<p class="note" id="a{number}">{escape_html(info.agent_id)} · {about}</p>\n'
            )
            shown, places = set(agent.active), range(first, first + len(agent.lines))
            items = ((place, line) for place, line in zip(places, agent.lines, strict=True) if line.id in shown)
            read = ((place, line.parse_uncached() or line.to_plain()) for place, line in items)
            for _, piece in conversation_html(read, formatter, {}):
                yield piece + "\n"
            first += len(agent.lines)
            yield "</details>\n"

    def _branch_title(self, branch: BranchRow) -> str:
        prompts = self._found.prompts
        said = next((prompts[number] for number in branch.entries if number in prompts), "")
        return said or f"{len(branch.entries):,} entries"

    def _read_item(self, number: int) -> Item:
        line = self._lines[number]
        return line.parse_uncached() or line.to_plain()


def _title_of_agent(agent: AgentSection) -> str:
    """The type of an agent and what it was started for."""
    title = agent.info.title
    if isinstance(title, Absent):
        entries = (line.parse_uncached() for line in agent.lines if line.role == "user")
        messages = (entry.message for entry in entries if isinstance(entry, MessageEntry))
        title = next((text_of(message.content) for message in messages if isinstance(message, UserMessage)), "")
    return to_one_line(f"{agent.info.agent}: {title}")


class _Found(Struct):
    """The data of the entries for the head of the page; nothing here is longer than a line."""

    prompts: dict[int, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    spent: list[Spent] = field(default_factory=list)


def _summarize_entries(lines: Sequence[Line]) -> _Found:
    found = _Found()
    for number, line in enumerate(lines):
        if line.role not in ("toolResult", "system"):
            entry = line.parse_uncached()
            if entry is not None:
                _add_to_summary(found, number, entry)
    return found


def _add_to_summary(found: _Found, number: int, entry: Entry) -> None:
    if isinstance(entry, LabelEntry):
        label = "" if isinstance(entry.label, Absent) else to_one_line(entry.label)
        found.labels.pop(entry.target_id, None)
        if label:
            found.labels[entry.target_id] = label
    elif isinstance(entry, (CompactionEntry, BranchSummaryEntry, UsageEntry)):
        if not isinstance(entry.usage, Absent) and found.spent:
            found.spent[-1].add(entry.usage)
    elif isinstance(entry, MessageEntry):
        message = entry.message
        if isinstance(message, UserMessage):
            text = to_one_line(shorten_file_blocks(text_of(message.content)))
            if text:
                found.prompts[number] = text
        elif isinstance(message, AssistantMessage):
            found.models[f"{message.provider}/{message.model}"] = None
            found.spent.append(spent_of(message.usage))


def _list_html(title: str, rows: Iterable[str], kind: str = "ul") -> Iterator[str]:
    """A list of links under a heading; nothing if there are none."""
    empty = True
    for row in rows:
        if empty:
            yield f"<h2>{title}</h2><{kind}>"
        empty = False
        yield f"<li>{row}</li>"
    if not empty:
        yield f"</{kind}>"


def _link_html(anchor: str, text: str, mark: str = "") -> str:
    shown = f'<span class="bookmark">{escape_html(mark)}</span> ' if mark else ""
    return f'<a href="#{anchor}">{shown}{escape_html(text)}</a>'


def to_one_line(text: str) -> str:
    """The beginning of a text; markdown's marks for bold and code are removed."""
    line = " ".join(to_plain_text(text[: LONGEST_TITLE * 8]).replace("**", "").replace("`", "").split())
    return line if len(line) <= LONGEST_TITLE else line[:LONGEST_TITLE] + "…"


def _switches_html() -> str:
    """The switches that the style sheet reads; they come before everything they control, and their labels are in the
    contents."""
    views = "".join(
        f'<input type="radio" class="toggle" name="view" id="{id}"{" checked" if id == "view-folded" else ""}>'
        for id in _VIEWS
    )
    return f'<input type="checkbox" class="toggle" id="contents">{views}'


def _content_security_policy() -> str:
    return (
        f"default-src 'none'; style-src '{style_hash()}'; img-src data:; script-src 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


# --- the file ---------------------------------------------------------------------------------------------------------


def write_page(path: str, pieces: Iterable[bytes], protected: str | None = None, called: str | None = None) -> None:
    """Put the page into a file as its pieces come, whole or not at all.

    Its folder must exist, and `protected` is never overwritten. Errors name the path as `called`: the host's way to
    write it. No link is followed at the name of the page, and a relative `called` does not leave the folder that it
    begins in by a link: a project may have planted either.
    """
    called = called or path
    if "\0" in path:
        raise Refusal("The path of the page cannot contain a NUL character")
    if protected is not None and _is_same_file(path, protected):
        raise Refusal(f"The page cannot be written over the session itself: {called}")
    asked = os.path.normpath(called)
    if not os.path.isabs(asked) and not asked.startswith(".."):
        start = os.path.realpath(path.removesuffix(asked))
        if os.path.commonpath([start, os.path.realpath(os.path.dirname(path))]) != start:
            raise Refusal(f"The page cannot be written to {called}: a link leads out of {start}. Give an absolute path")
    try:
        files.create_or_replace_file(path, pieces, PRIVATE)
    except OSError as error:
        raise Refusal(files.error_text(error, "open", called)) from None


def _is_same_file(path: str, other: str) -> bool:
    """True for every spelling of a file, for links to it and for its other names."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)
