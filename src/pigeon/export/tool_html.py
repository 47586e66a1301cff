"""Tool calls with their results as cards: a line about the call, and details below it that can be opened.

Which card a tool gets follows from its kind: the change or the file that was written, the file that was read, the
terminal, the plan; the card of any other tool shows its arguments by name and its result. Missing or unexpected values
fall back to that general card, so that nothing of a session is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from pigeon.export.diff_html import (
    DiffLine,
    count_changed_lines,
    diff_html,
    lines_of_change,
    lines_of_listing,
    lines_of_patch,
)
from pigeon.export.escaping import escape_html, name_html
from pigeon.export.highlight import language_of
from pigeon.export.markdown import TextFormatter
from pigeon.export.pictures import picture_html
from pigeon.tools.catalog import facts_of_recorded
from pigeon.wire import codec
from pigeon.wire.base import Absent
from pigeon.wire.content import TextContent, ToolCall, UserBlock, text_of
from pigeon.wire.errors import BadRecord
from pigeon.wire.events import ToolKind
from pigeon.wire.messages import BashExecutionMessage, ToolResultMessage

OPEN_UP_TO_LINES = 8
OPEN_UP_TO_CHARACTERS = 2_000
DIFF_OPEN_UP_TO_LINES = 60
LONGEST_SUMMARY = 160
MOST_NUMBERED_LINES = 20_000
_PATHS = ("path", "file_path", "filePath", "file")
_OLD_TEXTS = ("oldText", "old_string", "old_str", "oldString")
_NEW_TEXTS = ("newText", "new_string", "new_str", "newString")
_TELLING = ("command", *_PATHS, "pattern", "query", "url")
_SUCCESS = ("Successfully wrote", "Successfully replaced", "Successfully edited", "(no output)")
# The read tool's note below the lines, if there are more of them.
_READ_NOTE = re.compile(r"\n\n(\[(?:Showing lines|\d+ more lines|Line \d+ is)[^\n]{0,400}\])\s*\Z")
_TODO = re.compile(r"\[([ >x-])\] (.*)")
_STATES = {
    " ": "pending", ">": "in progress", "x": "done", "-": "dropped", "pending": "pending", "completed": "done",
    "in_progress": "in progress", "abandoned": "dropped", "cancelled": "dropped",
}  # fmt: skip


class Card(Struct):
    """The parts of a card: `body` is HTML; `shown` are the arguments that it already shows."""

    gist: str
    body: str = ""
    note: str = ""
    lines: int = 0
    open_up_to: int = OPEN_UP_TO_LINES
    shown: set[str] = field(default_factory=set)


def call_html(call: ToolCall, result: ToolResultMessage | None, formatter: TextFormatter) -> str:
    """The card of a call, without a page around it; `result` is None until there is one."""
    return card_html(call.name, call.arguments, result, formatter, _error_of(call), call.id)


def card_html(
    name: str,
    arguments: dict[str, Any],
    result: ToolResultMessage | None,
    formatter: TextFormatter,
    error: str = "",
    id: str = "",
) -> str:
    """The same for a result whose call is unknown; `id` is that of the call."""
    facts = facts_of_recorded(name)
    make = _CARDS.get(facts.kind, _general_card) if facts.subject or facts.kind in _WITHOUT_SUBJECT else _general_card
    make = _card_of_submitted_plan if set(arguments) == {"plan"} else make
    card = make(arguments, result, formatter) or _general_card(arguments, result, formatter)
    rest = {key: value for key, value in arguments.items() if key not in card.shown}
    given = _arguments_html(rest, formatter)
    label = '<p class="label">result</p>' if given.endswith("</pre>") and card.body else ""
    body = given + label + card.body
    if error:
        body = f'<p class="bad">{escape_html(error)}</p>{body}'
    place = f' data-call="{escape_html(id)}"' if id else ""
    changing = " changing" if facts.kind == "edit" else ""
    opened = " open" if result is not None and _is_short_enough_to_open(card, result) else ""
    note = f' <span class="note">{card.note}</span>' if card.note else ""
    gist = f" <code>{name_html(card.gist)}</code>" if card.gist else ""
    return (
        f'<details class="card{changing}"{place}{opened}><summary><b>{name_html(name[:80])}</b>{gist}{note}'
        f'{_state_html(result)}</summary><div class="inner">{body}</div></details>'
    )


def shell_html(message: BashExecutionMessage, formatter: TextFormatter) -> str:
    """A command that the host ran, and its output."""
    notes = []
    if message.cancelled:
        notes.append("cancelled")
    elif not isinstance(message.exit_code, Absent) and message.exit_code != 0:
        notes.append(f"exit code {message.exit_code}")
    if message.truncated:
        notes.append("output shortened")
    if message.exclude_from_context is True:
        notes.append("not shown to the model")
    note = f'<p class="note">{escape_html(", ".join(notes))}</p>' if notes else ""
    return _terminal_html(message.command, message.output, formatter) + note


def blocks_html(blocks: str | list[UserBlock], kind: str = "") -> str:
    """Texts unchanged, and pictures."""
    if isinstance(blocks, str):
        return f"<pre{kind}>{escape_html(blocks)}</pre>" if blocks else ""
    parts = []
    for block in blocks:
        if not isinstance(block, TextContent):
            parts.append(picture_html(block))
        elif block.text:
            parts.append(f"<pre{kind}>{escape_html(block.text)}</pre>")
    return "".join(parts)


def path_in(arguments: dict[str, Any]) -> str:
    """The file of a call, under any of its usual argument names; empty if there is none."""
    return _first_value(arguments, _PATHS)


def whole_text_of_read(arguments: dict[str, Any], result: ToolResultMessage) -> str | None:
    """The text that a call of `read` has shown, if that is the whole file."""
    text = _text_of_result(result)
    part = result.is_error or arguments.get("offset") or arguments.get("limit") or _READ_NOTE.search(text)
    return None if part or len(result.content) != 1 else text


def json_text(value: Any) -> str:
    """A value as indented JSON; values that are not JSON are printed as Python does."""
    import msgspec

    try:
        return msgspec.json.format(codec.encode(value), indent=2).decode("utf-8", "replace")
    except (BadRecord, msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return repr(value)


# --- the tools --------------------------------------------------------------------------------------------------------

Maker = Callable[[dict[str, Any], "ToolResultMessage | None", TextFormatter], Card | None]


def _card_of_command(
    arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter
) -> Card | None:
    command = arguments.get("command")
    if not isinstance(command, str) and arguments:
        return None
    command = command if isinstance(command, str) else ""
    output = _text_of_result(result)
    gist = _to_one_line(command)
    body = _terminal_html("" if gist == command else command, output, formatter) + _pictures_html(result)
    return Card(gist, body, lines=_count_lines(output), shown={"command"})


def _card_of_read(arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter) -> Card | None:
    path = _first_value(arguments, _PATHS)
    if not path:
        return None
    text, first = _text_of_result(result), arguments.get("offset")
    first = int(first) if isinstance(first, (int, float)) and 1 <= first < 1e9 else 1
    found = _READ_NOTE.search(text)
    note = found[1] if found else ""
    text = text[: found.start()] if found else text
    pictures = _pictures_html(result)
    if result is None or result.is_error or pictures:
        body = _plain_result_html(result)
    else:
        body = _numbered_code_html(text, first, language_of(path), formatter)
        body += f'<p class="note">{escape_html(note)}</p>' if note else ""
    lines = _count_lines(text)
    where = f"{path}:{first}-{first + lines - 1}" if first > 1 and text else path
    return Card(_to_one_line(where), body, lines=lines, shown={*_PATHS, "offset", "limit"})


def _card_of_change(
    arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter
) -> Card | None:
    """A file that was written as a whole, or lines that were replaced in it."""
    make = _card_of_write if isinstance(arguments.get("content"), str) else _card_of_edit
    return make(arguments, result, formatter)


def _card_of_write(
    arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter
) -> Card | None:
    path, content = _first_value(arguments, _PATHS), arguments.get("content")
    if not path or not isinstance(content, str):
        return None
    lines = _count_lines(content)
    body = _numbered_code_html(content, 1, language_of(path), formatter) + _result_html(result)
    note = f"{lines:,} line{'' if lines == 1 else 's'}"
    return Card(_to_one_line(path), body, note, lines=lines, open_up_to=20, shown={*_PATHS, "content"})


def _card_of_edit(arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter) -> Card | None:
    path = _first_value(arguments, _PATHS)
    lines = lines_of_result(result) or lines_of_edit(arguments)
    if not path or not lines:
        return None
    added, removed = count_changed_lines(lines)
    note = f'<span class="added">+{added:,}</span> <span class="removed">-{removed:,}</span>'
    shown = {*_PATHS, "edits", *_OLD_TEXTS, *_NEW_TEXTS}
    body = diff_html(lines, formatter.try_spend_budget) + _result_html(result)
    return Card(_to_one_line(path), body, note, lines=len(lines), open_up_to=DIFF_OPEN_UP_TO_LINES, shown=shown)


def _card_of_search(
    arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter
) -> Card | None:
    pattern, path = _first_value(arguments, ("pattern", "query", "glob")), _first_value(arguments, _PATHS)
    shown = {key for key in ("pattern", "query", "glob", *_PATHS) if arguments.get(key) in (pattern, path)}
    gist = f"{pattern} in {path}" if pattern and path else pattern or path or "."
    return Card(
        _to_one_line(gist), _plain_result_html(result), lines=_count_lines(_text_of_result(result)), shown=shown
    )


def _card_of_plan(arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter) -> Card | None:
    todos = arguments.get("todos")
    tasks = [_task_html(item) for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
    if tasks:
        return Card("", f'<ul class="plan">{"".join(tasks)}</ul>', lines=len(tasks), open_up_to=20, shown={"todos"})
    lines = _text_of_result(result).split("\n")
    if result is None or result.is_error or not any(map(_TODO.match, lines)):
        return None
    parts = [f'<ul class="plan">{"".join(map(_plan_line_html, filter(str.strip, lines[1:])))}</ul>']
    return Card(lines[0], "".join(parts), lines=len(lines), open_up_to=20, shown={"ops"})


def _general_card(arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter) -> Card:
    gist = _main_argument(arguments)
    shown = {key for key in _TELLING if arguments.get(key) == gist}
    lines = lines_of_result(result)
    body = _plain_result_html(result, formatter) + (diff_html(lines, formatter.try_spend_budget) if lines else "")
    return Card(gist, body, lines=_count_lines(_text_of_result(result)), shown=shown)


def _card_of_agent(
    arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter
) -> Card | None:
    """The answer of an agent, as the answers of the conversation are shown; what follows it is for the model."""
    text = _text_of_result(result)
    answer, found, rest = text.rpartition("\n\nAgent: ")
    about = rest.partition("\n")[2] if found else ""
    body = _prose_html(answer if found else text, formatter)
    body += f'<p class="note">{escape_html(about)}</p>' if about else ""
    details = result.details if result is not None and isinstance(result.details, dict) else {}
    agent = details.get("agent") or arguments.get("agent")
    note = name_html(agent) if isinstance(agent, str) else ""
    title = arguments.get("title")
    gist = _to_one_line(title) if isinstance(title, str) and title.strip() else _main_argument(arguments)
    return Card(gist, body, note=note, lines=_count_lines(text), shown={"title", "agent"})


def _card_of_submitted_plan(
    arguments: dict[str, Any], result: ToolResultMessage | None, formatter: TextFormatter
) -> Card | None:
    """A plan for a person to accept: it is read as prose."""
    plan = arguments["plan"]
    if not isinstance(plan, str):
        return None
    details = result.details if result is not None and isinstance(result.details, dict) else {}
    decision = details.get("decision")
    note = _DECISIONS.get(decision, "") if isinstance(decision, str) else ""
    body = _prose_html(plan, formatter) + ("" if note else _plain_result_html(result, formatter))
    return Card("", body, note=note, lines=_count_lines(plan), open_up_to=LONGEST_OPEN_PLAN, shown={"plan"})


def _prose_html(text: str, formatter: TextFormatter) -> str:
    return f'<div class="body">{formatter.format_prose(text)}</div>' if text else ""


LONGEST_OPEN_PLAN = 80
# What a person has decided about a plan.
_DECISIONS = {"accepted": "accepted", "change": "to be changed", "refused": "refused", "dismissed": "not accepted"}
# Kinds whose calls are shown in a way of their own though permission rules match all of their arguments.
_WITHOUT_SUBJECT = ("plan", "agent")
_CARDS: dict[ToolKind, Maker] = {
    "execute": _card_of_command, "read": _card_of_read, "edit": _card_of_change, "search": _card_of_search,
    "plan": _card_of_plan, "agent": _card_of_agent,
}  # fmt: skip


# --- their parts ------------------------------------------------------------------------------------------------------


def _terminal_html(command: str, output: str, formatter: TextFormatter) -> str:
    asked = f'<span class="asked">{name_html(command)}</span>\n' if command else ""
    shown = formatter.format_output(output.rstrip("\n")) if output else ""
    return f'<pre class="terminal">{asked}{shown}</pre>' if asked or shown else ""


def _numbered_code_html(text: str, first: int, language: str, formatter: TextFormatter) -> str:
    """A file with the numbers of its lines beside it."""
    text = text.removesuffix("\n")
    if not text:
        return '<p class="note">an empty file</p>'
    count = text.count("\n") + 1
    code = f"<pre>{formatter.format_code(text, language)}</pre>"
    if count > MOST_NUMBERED_LINES:
        return code
    numbers = "\n".join(map(str, range(first, first + count)))
    return f'<div class="code"><pre class="numbers" aria-hidden="true">{numbers}</pre>{code}</div>'


def lines_of_result(result: ToolResultMessage | None) -> list[DiffLine]:
    """The changed lines that a tool reports, or an empty list."""
    details = result.details if result is not None and isinstance(result.details, dict) else {}
    patch, listing = details.get("patch"), details.get("diff")
    lines = lines_of_patch(patch) if isinstance(patch, str) else []
    if not lines and isinstance(listing, str) and listing:
        lines = lines_of_patch(listing) or lines_of_listing(listing)
    return lines


def lines_of_edit(arguments: dict[str, Any]) -> list[DiffLine]:
    """The lines that an edit call wants to replace, without their numbers."""
    edits = arguments.get("edits")
    listed = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else []
    lines: list[DiffLine] = []
    for edit in [*listed, arguments]:
        old, new = _first_value(edit, _OLD_TEXTS), _first_value(edit, _NEW_TEXTS)
        if old or new:
            lines += [*([DiffLine("@", "")] if lines else []), *lines_of_change(old, new)]
    return lines


def _task_html(item: dict[str, Any]) -> str:
    text = item.get("content") or item.get("text") or item.get("title") or json_text(item)
    return _plan_item_html(str(item.get("status", "pending")), str(text))


def _plan_line_html(line: str) -> str:
    found = _TODO.fullmatch(line.strip())
    return _plan_item_html(found[1], found[2]) if found else f'<li class="phase">{escape_html(line.strip())}</li>'


def _plan_item_html(status: str, text: str) -> str:
    state = _STATES.get(status, "pending")
    return f'<li class="{state.replace(" ", "-")}">{escape_html(text)} <span class="state">({state})</span></li>'


def _plain_result_html(result: ToolResultMessage | None, formatter: TextFormatter | None = None) -> str:
    """The result unchanged; an object or a list as coloured JSON."""
    if result is None:
        return ""
    text = _text_of_result(result)
    if formatter is not None and len(result.content) == 1 and text[:1] in ("{", "[") and not result.is_error:
        return f"<pre>{formatter.format_code(text, 'json')}</pre>"
    return blocks_html(result.content, ' class="bad"' if result.is_error else "")


def _result_html(result: ToolResultMessage | None) -> str:
    """The result of a tool whose work is shown already, unless it only reports success."""
    if result is not None and not result.is_error and _text_of_result(result).startswith(_SUCCESS):
        return _pictures_html(result)
    return _plain_result_html(result)


def _pictures_html(result: ToolResultMessage | None) -> str:
    blocks = result.content if result is not None else []
    return "".join(picture_html(block) for block in blocks if not isinstance(block, TextContent))


def _arguments_html(arguments: dict[str, Any], formatter: TextFormatter) -> str:
    """Short values as a list; texts in full, since people read them; the rest as JSON."""
    short, long = [], []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json_text(value)
        if len(text) <= LONGEST_SUMMARY and "\n" not in text:
            short.append(f"<dt>{name_html(str(name))}</dt><dd><code>{name_html(text)}</code></dd>")
        else:
            shown = escape_html(text) if isinstance(value, str) else formatter.format_code(text, "json")
            long.append(f'<p class="label">{escape_html(str(name))}</p><pre>{shown}</pre>')
    listed = f'<dl class="arguments">{"".join(short)}</dl>' if short else ""
    return listed + "".join(long)


def _main_argument(arguments: dict[str, Any]) -> str:
    """The most informative argument, on one line."""
    return _to_one_line(
        _first_value(arguments, _TELLING) or next((v for v in arguments.values() if isinstance(v, str)), "")
    )


def _first_value(values: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((value for value in map(values.get, names) if isinstance(value, str) and value), "")


def _to_one_line(text: str) -> str:
    line = " ".join(text[: LONGEST_SUMMARY * 4].split())
    return line if len(line) <= LONGEST_SUMMARY else line[:LONGEST_SUMMARY] + "…"


def _text_of_result(result: ToolResultMessage | None) -> str:
    return text_of(result.content) if result is not None else ""


def _count_lines(text: str) -> int:
    return text.removesuffix("\n").count("\n") + 1 if text else 0


def _state_html(result: ToolResultMessage | None) -> str:
    if result is None:
        return ' <span class="note none">no result</span>'
    took = result.duration_ms
    seconds = f' <span class="note took">{took / 1000:,.1f} s</span>' if isinstance(took, int) and took >= 100 else ""
    return seconds + (' <span class="bad">failed</span>' if result.is_error else "")


def _error_of(call: ToolCall) -> str:
    return "" if isinstance(call.arguments_error, Absent) else call.arguments_error


def _is_short_enough_to_open(card: Card, result: ToolResultMessage) -> bool:
    room = 5 if result.is_error else 1
    return card.lines <= card.open_up_to * room and len(_text_of_result(result)) <= OPEN_UP_TO_CHARACTERS * room
