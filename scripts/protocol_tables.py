"""The records as Markdown tables, so that the page about the protocol cannot say anything else than the code.

A page marks the place of each table with two comments, `<!-- table: name -->` and `<!-- end -->`; `refreshed` fills in
what stands between them. `make docs` runs this for docs/protocol.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from pigeon.rpc.session_connection import BEHAVIOUR_FEATURES
from pigeon.wire import commands, content, dialogs, entries, events, messages, model
from pigeon.wire.base import Absent, Record, intended_hint
from pigeon.wire.choices import ALL_FEATURES
from pigeon.wire.commands import Command

PAGE = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"
_PLACE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null", Any: "any"}
_NOTHING = "none"
# What features change in the form of all events; the events and members that they show are declared at the records.
FORM_FEATURES = {
    "deltas": "`message_update` without the message so far",
    "seq": "`seq`, the number of each event and dialog",
    "attribution": "`runId` on each event and dialog of a run",
}
_GIVEN = {content.ImageInput, content.ImageSource, content.Attachment, commands.HostTool, commands.HostToolOutcome}


def commands_table() -> str:
    """Every command with its lane, arguments and answer."""
    rows = [
        (f"`{commands.NAMES[kind]}`", kind.lane, _keys(kind, without=("id",)), _answer(kind), sentence_of(kind))
        for kind in commands.ALL
    ]
    return table(("command", "lane", "arguments", "`data` of the answer", "meaning"), rows)


def answers_table() -> str:
    """Every record that is the `data` of an answer."""
    return _records_table(_by_name(_answers()), "record", _heading)


def events_table() -> str:
    """Every event; the page says of all of them that they may have `seq` and `runId`."""
    return _records_table(events.ALL, "event", without=("seq", "run_id"))


def stream_table() -> str:
    """What stands in the `assistantMessageEvent` of an update."""
    return _records_table(get_args(events.StreamEvent), "type", without=("partial",))


def dialogs_table() -> str:
    """Every method of an `extension_ui_request`."""
    return _records_table(get_args(dialogs.DialogRequest), "method", without=("type", "id", "seq", "run_id"))


def messages_table() -> str:
    """Messages by role."""
    return _records_table(get_args(messages.Message), "role")


def blocks_table() -> str:
    """Content blocks by type."""
    kinds = dict.fromkeys((*get_args(content.UserBlock), *get_args(content.AssistantBlock)))
    return _records_table(tuple(kinds), "type")


def entries_table() -> str:
    """Lines of a session file by type, the header first."""
    return _records_table(
        (entries.SessionHeader, *get_args(entries.Entry)), "type", without=("id", "parentId", "timestamp")
    )


def vocabulary_table() -> str:
    """The records that others are made of, as far as no other table has them."""
    known: set[type[Record]] = set()
    pending = [*_answers(), *commands.ALL, *events.ALL, *get_args(messages.Message), *get_args(entries.Entry)]
    while pending:
        kind = pending.pop()
        if kind not in known:
            known.add(kind)
            pending.extend(part for hint in get_type_hints(kind).values() for part in _records_in(hint))
    parts = {kind for kind in known - _answers() if kind.__struct_config__.tag is None}
    return _records_table(_by_name(parts), "record", _heading)


def features_table() -> str:
    """What each feature of `hello` shows and does: the declarations of events and members, and what else it changes."""
    shown = feature_records()
    rows = [
        (
            f"`{feature}`",
            "<br>".join((*filter(None, [FORM_FEATURES.get(feature)]), *shown.get(feature, ()))),
            BEHAVIOUR_FEATURES[feature][0] if feature in BEHAVIOUR_FEATURES else "",
        )
        for feature in ALL_FEATURES
    ]
    return table(("feature", "what it shows", "what it changes besides"), rows)


def feature_records() -> dict[str, list[str]]:
    """The events and the members of records that features show, by the name of the feature."""
    found: dict[str, list[str]] = {}
    for event in events.ALL:
        if event.feature is not None:
            found.setdefault(event.feature, []).append(f"the event {_tag(event)}")
    for kind in (*_by_name(_answers()), *events.ALL):
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        of = _tag(kind) if kind in events.ALL else f"[{kind.__name__}](#{_anchor(kind)})"
        for name, feature in kind.member_features.items():
            found.setdefault(feature, []).append(f"`{names[name]}` of {of}")
    return found


TABLES: dict[str, Callable[[], str]] = {
    "features": features_table,
    "commands": commands_table,
    "answers": answers_table,
    "events": events_table,
    "stream": stream_table,
    "dialogs": dialogs_table,
    "messages": messages_table,
    "blocks": blocks_table,
    "entries": entries_table,
    "vocabulary": vocabulary_table,
}


def refreshed(page: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    """The page with every marked table as the records say now; raises `KeyError` for a table that does not exist."""
    return _PLACE.sub(lambda found: f"{found[1]}\n{tables[found[2]]()}\n\n{found[3]}", page)


def sentence_of(kind: type) -> str:
    """The first sentence of a record's docstring, ready for a table."""
    text = (kind.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def type_text(hint: Any) -> str:
    """A type as hosts know it: JSON's words, literals in quotes, records by name."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{type_text(inner[0])} from {inner[1].ge} to {inner[1].le}"
    if origin is Literal:
        return " \\| ".join(f'`"{value}"`' for value in inner)
    if origin in (Union, UnionType):
        return _union(inner)
    if origin is list:
        return f"list of {type_text(inner[0])}"
    if origin is dict:
        return f"object of {type_text(inner[1])}"
    return _NAMED.get(frozenset({hint})) or f"[{hint.__name__}](#{_anchor(hint)})"


_NAMED: dict[frozenset[Any], str] = {
    frozenset(get_args(messages.Message)): "[message](#messages)",
    frozenset(get_args(content.UserBlock)): "[text or image](#content-blocks)",
    frozenset(get_args(content.AssistantBlock)): "[content block](#content-blocks)",
    frozenset(get_args(entries.Entry)): "[entry](#entries)",
    frozenset(get_args(entries.AnyEntry)): "[entry](#entries)",
    frozenset(get_args(events.StreamEvent)): "[stream event](#stream-events)",
    frozenset({messages.AssistantMessage}): "[assistant message](#messages)",
    frozenset({messages.ToolResultMessage}): "[tool result message](#messages)",
    frozenset({content.ToolCall}): "[tool call](#content-blocks)",
}


def _union(kinds: Sequence[Any]) -> str:
    present = [kind for kind in kinds if kind is not Absent]
    named = _NAMED.get(frozenset(present))
    if named is not None:
        return named
    if int in present and float in present:
        present.remove(int)
    return " \\| ".join(type_text(kind) for kind in present)


def _keys(kind: type[Record], without: Iterable[str] = ()) -> str:
    """`name`: type, with a question mark for what may be left out."""
    hints = get_type_hints(kind, include_extras=True)
    given = issubclass(kind, Command) or kind in _GIVEN
    shown = []
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in without:
            hint, intended = intended_hint(hints[field.name])
            optional = not field.required if given and not intended else Absent in get_args(hint)
            default = _default(field.default) if given else ""
            shown.append(f"`{field.encode_name}{'?' if optional else ''}`: {type_text(hint)}{default}")
    return "<br>".join(shown) or _NOTHING


def _default(value: Any) -> str:
    return f", by default `{value}`" if value and isinstance(value, str | int) else ""


def _answer(kind: type[Command]) -> str:
    if kind.silent:
        return "no answer"
    if kind.answer is NoReturn:
        return "always refused"
    return _NOTHING if kind.answer is None else type_text(kind.answer)


def _answers() -> set[type[Record]]:
    return {kind for command in commands.ALL for kind in _records_in(command.answer)} - {model.Model}


def _by_name(kinds: Iterable[type[Record]]) -> list[type[Record]]:
    return sorted(kinds, key=lambda kind: kind.__name__)


def _records_in(hint: Any) -> Iterable[type[Record]]:
    if isinstance(hint, type) and issubclass(hint, Record):
        return (hint,)
    return [kind for inner in get_args(hint) for kind in _records_in(inner)]


def _heading(kind: type[Record]) -> str:
    """A name that can be linked to."""
    return f'<a id="{_anchor(kind)}"></a>{kind.__name__}'


def _anchor(kind: type[Record]) -> str:
    return f"record-{kind.__name__.lower()}"


def _tag(kind: type[Record]) -> str:
    return f"`{kind.__struct_config__.tag}`"


def _records_table(kinds: Iterable[type[Record]], first: str, name: Any = _tag, without: Iterable[str] = ()) -> str:
    return table((first, "keys", "meaning"), [(name(kind), _keys(kind, without), sentence_of(kind)) for kind in kinds])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [" | ".join(head), "|".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text("utf-8")), "utf-8")
