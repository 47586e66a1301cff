"""What an editor shows of a tool call: title, kind, locations and content, derived from the call and its outcome.

A view is the same for both versions of the protocol; `Edition` writes it for each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pigeon.system.paths import absolute_path
from pigeon.wire.base import Absent, Json
from pigeon.wire.content import ImageContent, TextContent, UserBlock, text_of
from pigeon.wire.events import ToolOutcome

if TYPE_CHECKING:
    from pigeon.agent.tool_facts import ToolFacts

CallStatus = Literal["pending", "in_progress", "completed", "failed", "cancelled"]
_EXITED = re.compile(r"(?:\n\n)?^Command exited with code (\d+)\Z", re.MULTILINE)
LONGEST_TITLE = 300
CONTEXT = 3


class Location(Struct, frozen=True):
    """A file that a call is about, and a line of it."""

    path: str
    line: int | None = None


class BlockPiece(Struct, frozen=True):
    """Content that is a block: text or a picture."""

    block: dict[str, Json]


class DiffPiece(Struct, frozen=True):
    """A file before and after; `old` is None for a new file, `patch` is a unified diff where there is one."""

    path: str
    old: str | None
    new: str
    patch: str | None = None


class TerminalPiece(Struct, frozen=True):
    """A terminal that is shown in the call."""

    terminal_id: str


ToolPiece = BlockPiece | DiffPiece | TerminalPiece


class ToolView(Struct, frozen=True, kw_only=True):
    """The state of a tool call; `begun` is true for its first view. Members that are `None` have not changed."""

    call_id: str
    begun: bool = False
    name: str | None = None
    title: str | None = None
    kind: str | None = None
    status: CallStatus | None = None
    content: list[ToolPiece] | None = None
    locations: list[Location] | None = None
    raw_input: Json = None
    raw_output: Json = None


def facts_of(name: str) -> ToolFacts:
    from pigeon.tools import catalog

    return catalog.facts_of(name)


def kind_of_tool(name: str) -> str:
    """The kind that editors choose an icon by."""
    kind = facts_of(name).kind
    if kind == "other":
        return "fetch" if "fetch" in name or "web" in name else "other"
    return "think" if kind in ("plan", "agent") else kind


def view_of_call(call_id: str, name: str, arguments: Json, cwd: str, home: str) -> ToolView:
    """A call with its arguments, before it runs."""
    args: dict[str, Json] = arguments if isinstance(arguments, dict) else {}
    return ToolView(
        call_id=call_id,
        name=name,
        title=_title(name, args),
        kind=kind_of_tool(name),
        locations=_locations(name, args, cwd, home),
        raw_input=arguments,
    )


def proposed_pieces(name: str, args: dict[str, Json], diff: str | None, cwd: str, home: str) -> list[ToolPiece]:
    """What a call would do, for a person who is asked about it."""
    path = facts_of(name).find_changed_file(args)
    if path is not None and isinstance(args.get("edits"), list):
        return replacement_pieces(absolute_path(path, cwd, home), args)
    if diff is not None:
        return [BlockPiece(text_block(fence_text(diff, "diff")))]
    return []


def replacement_pieces(place: str, args: dict[str, Json]) -> list[ToolPiece]:
    """The replacements that a call makes in a file, each as a difference of its own."""
    edits = args.get("edits")
    listed = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else []
    return [DiffPiece(place, str(edit.get("oldText", "")), str(edit.get("newText", ""))) for edit in listed]


def outcome_pieces(name: str, outcome: ToolOutcome, is_error: bool) -> list[ToolPiece]:
    """The outcome of a call. A successful change of a file is shown only as its diff, which callers add."""
    kind = facts_of(name).kind
    if kind in ("edit", "plan") and not is_error:
        return []
    if kind == "agent":
        return [BlockPiece(text_block(_answer_of_agent(text_of(outcome.content))))] if outcome.content else []
    pieces: list[ToolPiece] = []
    for block in outcome.content:
        if isinstance(block, TextContent) and not block.text:
            continue
        plain = isinstance(block, TextContent) and kind != "other"
        pieces.append(BlockPiece(text_block(fence_text(text_of_block(block))) if plain else content_block(block)))
    return pieces


def progress_pieces(name: str, outcome: ToolOutcome) -> list[ToolPiece]:
    """What a call has shown so far; of an agent, what it has done and is doing."""
    if facts_of(name).kind != "agent":
        return outcome_pieces(name, outcome, False)
    lines = text_of(outcome.content).splitlines()
    return [BlockPiece(text_block("\n".join(f"* `{line.replace('`', chr(39))}`" for line in lines)))] if lines else []


def _answer_of_agent(text: str) -> str:
    """The answer of an agent, without the lines for the model that follow it."""
    answer, found, rest = text.rpartition("\n\nAgent: ")
    if not found:
        return text
    about = [line for line in rest.split("\n")[1:] if line.startswith("Its changes are on the branch ")]
    return "\n\n".join([answer, *about])


def parse_command_end(outcome: ToolOutcome, is_error: bool) -> tuple[str, int | None]:
    text = text_of(outcome.content)
    if not is_error:
        return text, 0
    found = _EXITED.search(text)
    return (text, None) if found is None else (text[: found.start()], int(found[1]))


def raw_output_of(name: str, outcome: ToolOutcome) -> Json:
    """The outcome as data, for tools that Pigeon does not know; None for its own tools, whose content is shown."""
    if facts_of(name).kind != "other" or isinstance(outcome.details, Absent):
        return None
    return outcome.details


def text_block(text: str) -> dict[str, Json]:
    return {"type": "text", "text": text}


def content_block(block: UserBlock) -> dict[str, Json]:
    """A content block of the wire in the form of ACP."""
    if isinstance(block, ImageContent):
        return {"type": "image", "data": block.data, "mimeType": block.mime_type}
    return text_block(block.text)


def text_of_block(block: Any) -> str:
    return block.text if isinstance(block, TextContent) else ""


def fence_text(text: str, language: str = "") -> str:
    """Text in a code fence, so that editors do not render it as markdown."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def git_patch(path: str, old: str | None, new: str) -> str:
    """The change of a file as one hunk of a patch: all lines between the first and the last that differ."""
    before, after = _split_lines(old or ""), _split_lines(new)
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, last = max(0, start - CONTEXT), max(0, end - CONTEXT)
    gone, come = before[first : len(before) - last], after[first : len(after) - last]
    kept_first, kept_last = start - first, end - last
    lines = [
        *(f" {line}" for line in gone[:kept_first]),
        *(f"-{line}" for line in gone[kept_first : len(gone) - kept_last]),
        *(f"+{line}" for line in come[kept_first : len(come) - kept_last]),
        *(f" {line}" for line in gone[len(gone) - kept_last :]),
    ]
    hunk = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    head = f"diff --git {path} {path}\n"
    if old is None:
        head += f"new file mode 100644\n--- /dev/null\n+++ {path}\n"
    else:
        head += f"--- {path}\n+++ {path}\n"
    return f"{head}@@ -{_hunk_range(first, len(gone))} +{_hunk_range(first, len(come))} @@\n{hunk}"


def _split_lines(text: str) -> list[str]:
    """The lines with their LF; in a patch, no other character ends a line."""
    *lines, rest = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([rest] if rest else ())]


def _hunk_range(first: int, count: int) -> str:
    return f"{first + 1 if count else first},{count}"


def _title(name: str, args: dict[str, Json]) -> str:
    title = facts_of(name).title(args)
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"


def _locations(name: str, args: dict[str, Json], cwd: str, home: str) -> list[Location] | None:
    facts = facts_of(name)
    path = facts.find_path(args)
    if path is None or "\0" in path:
        return None
    return [Location(absolute_path(path.removeprefix("@"), cwd, home), facts.find_line(args))]
