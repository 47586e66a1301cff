"""The reference of the Python library, made from the signatures and docstrings of what `pigeon` exports.

A docstring is a sentence, further paragraphs, and where members or arguments need words of their own an `Args:` or
`Attributes:` part with a line for each; that becomes a table. An `Example:` stands at the end. `make docs` writes
docs/reference/library.md, and a test holds it in step.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from protocol_tables import sentence_of, table

import pigeon
import pigeon.testing
from pigeon.frontends.batch.public import BatchChoices
from pigeon.sdk import command_methods
from pigeon.sdk.agent import AgentChoices
from pigeon.sdk.conversation import Conversation
from pigeon.wire import agents as agent_records
from pigeon.wire import answers, choices, content, dialogs, entries, events, messages, model, steering
from pigeon.wire.base import Absent, intended_hint
from pigeon.wire.commands import NAMES, changes, mcp, services, undo

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "library.md"
HEAD = """# Reference of the Python library

Every class, function and record of `import pigeon`, generated from the docstrings of the source (`make docs`).
For an introduction, see the [tutorial](../tutorial.md) and [Pigeon in Python programs](../library.md).

* [Agents](#agents): `Agent`, `Client`, `SyncAgent`, `SyncClient`, `run_sync`
* [Conversation](#conversation): what all of them can do, and [every command](#commands)
* [Batches](#batches): `batch`, `batch_sync`, `Task`, `TaskResult`
* [Results and limits](#results-and-limits): `Result`, `Limits`
* [Agents that an agent starts](#agents-that-an-agent-starts): `AgentType`, `SpawnedRun`
* [Tools](#tools), [permissions](#permissions), [images](#images)
* [Errors](#errors)
* [Session stores](#session-stores): `SessionStore`, `FileStore`, `PostgresStore`
* [Testing](#testing): `pigeon.testing`
* Records: [events](#events), [pieces of an answer](#pieces-of-an-answer), [dialogs](#dialogs), [messages](#messages),
  [content](#content), [answers to commands](#answers-to-commands), [other records](#other-records)
"""
RECORDS_HEAD = """Records are read, never changed. A member with a question mark may be absent; it is then
`msgspec.UNSET`. The lower name is that on the wire, where it is part of [the protocol](../protocol.md)."""
# Names of the source that say more when they are written out.
SPELLED = {
    "OnPermission": "Callable[[PermissionRequest], PermissionAnswer]",
    "OnDialog": "Callable[[DialogRequest], str | bool | None]",
    "AnyTool": "HostFunction | Callable",
    "ApprovalMode": " | ".join(repr(word) for word in choices.APPROVAL_MODES),
    "ANSWER_SECONDS": "30.0",
}
ALIASES = {
    "PermissionAnswer": "What `on_permission` returns: `True` or `'allow'` for this call, `'always'` also for "
    "the same ones later in the session; anything else is a no.",
    "ImageLike": "An image: a path, bytes, a Pillow image, or a record with the image in base64.",
}
STORE_METHODS = ("create", "acquire", "renew", "release", "append", "read", "list", "search", "delete")
BY_HAND = ("prompt", "run", "spawn", "events", "steer", "follow_up", "set_tools", "send", "open", "close")
_ENTRY = re.compile(r"^ {4}(\*{0,2}\w+): (.+)$")


class ParsedDoc:
    """A docstring: its paragraphs in Markdown, the entries of its `Args:` or `Attributes:`, and its `Example:`."""

    def __init__(self, thing: Any, name: str) -> None:
        text, _, code = inspect.cleandoc(thing.__doc__ or "").partition("\n\nExample:\n")
        if not text:
            raise ValueError(f"{name} has no docstring")
        self.example = textwrap.dedent(code)
        self.entries: dict[str, str] = {}
        kept: list[str] = []
        inside, last = False, ""
        for line in text.splitlines():
            entry = _ENTRY.match(line) if inside else None
            if line in ("Args:", "Attributes:"):
                inside = True
            elif entry:
                last = entry[1].lstrip("*")
                self.entries[last] = entry[2]
            elif inside and line.startswith("     "):
                self.entries[last] += f" {line.strip()}"
            else:
                inside = inside and not line.strip()
                kept.append(line)
        paragraphs = [" ".join(part.split()) for part in "\n".join(kept).split("\n\n")]
        self.text = "\n\n".join(part for part in paragraphs if part)


def signature_of(function: Callable[..., Any], name: str) -> str:
    """A call as a reader writes it: names, types, defaults."""
    shown = [_parameter(one) for one in inspect.signature(function).parameters.values() if one.name != "self"]
    parameters = list(inspect.signature(function).parameters.values())
    first = next((at for at, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY), None)
    positional = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if first is not None and not positional:
        shown.insert(first - (1 if parameters[0].name == "self" else 0), "*")
    answer = inspect.signature(function).return_annotation
    returns = "" if answer in (inspect.Signature.empty, "None") else f" -> {_spelled(str(answer))}"
    return f"{name}({', '.join(shown)}){returns}"


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    hint = "" if one.annotation is one.empty or one.kind is one.VAR_KEYWORD else f": {_spelled(str(one.annotation))}"
    default = "" if one.default is one.empty else f" = {one.default!r}"
    return f"{stars}{one.name}{hint}{default}"


def _spelled(text: str) -> str:
    text = re.sub(r"\b(OutputT|_Self)\b", "T", text)
    return re.sub(r"\b\w+\b", lambda found: SPELLED.get(found[0], found[0]), text)


def options_of(kind: type, more: type | None = None) -> list[tuple[str, str, str]]:
    """The options of a constructor: name, type, meaning; raises `ValueError` for one without a meaning."""
    doc = ParsedDoc(kind, kind.__name__)
    rows = [
        (one.name, _spelled(str(one.annotation)))
        for one in inspect.signature(kind).parameters.values()
        if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    meanings = dict(doc.entries)
    if more is not None:
        meanings |= ParsedDoc(more, more.__name__).entries
        rows += [(name, _spelled(_raw(hint))) for name, hint in more.__annotations__.items()]
    missing = [name for name, _ in rows if name not in meanings]
    if missing:
        raise ValueError(f"the docstring of {kind.__name__} does not say what these are for: {', '.join(missing)}")
    return [(name, hint, meanings[name]) for name, hint in rows]


def _raw(hint: Any) -> str:
    return str(getattr(hint, "__forward_arg__", hint))


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _options_table(kind: type, more: type | None = None) -> str:
    rows = [
        (_code(name), _code(hint.removesuffix(" | None")), _cell(meaning))
        for name, hint, meaning in options_of(kind, more)
    ]
    return table(("option", "type", "meaning"), rows)


def _entries_table(doc: ParsedDoc, head: str) -> str:
    rows = [(_code(name), _cell(meaning)) for name, meaning in doc.entries.items()]
    return table((head, "meaning"), rows) if rows else ""


def _function(function: Callable[..., Any], name: str, level: str = "###") -> str:
    doc = ParsedDoc(function, name)
    waits = "await " if inspect.iscoroutinefunction(function) else ""
    call = f"```python\n{waits}{_wrapped(signature_of(function, name))}\n```"
    title = name.rpartition(".")[2]
    return _parts(f"{level} {title}", call, doc.text, _entries_table(doc, "argument"), _example(doc))


def _example(doc: ParsedDoc) -> str:
    return f"```python\n{doc.example}\n```" if doc.example else ""


def _wrapped(call: str) -> str:
    """A call on one line, or one parameter a line where that is too long."""
    if len(call) <= 110:
        return call
    name, rest = call.split("(", 1)
    inner, end = rest.rsplit(")", 1)
    parameters, depth, start = [], 0, 0
    for at, letter in enumerate(inner):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parameters.append(inner[start:at].strip())
            start = at + 1
    lines = [*parameters, inner[start:].strip()]
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){end}"


def _class(kind: type, *, members: Iterable[str] = (), table_text: str = "") -> str:
    doc = ParsedDoc(kind, kind.__name__)
    shown = [_member(kind, name) for name in members]
    plain = issubclass(kind, msgspec.Struct) and not doc.entries
    listed = "\n".join([*shown, *(f"* {line}" for line in (_members(kind).split("<br>") if plain else []))])
    members_table = table_text or _entries_table(doc, "member")
    return _parts(f"### {kind.__name__}", doc.text, members_table, listed, _example(doc))


def _member(kind: type, name: str) -> str:
    member = inspect.getattr_static(kind, name)
    if isinstance(member, property):
        return f"* `{name}`: {ParsedDoc(member, name).text}"
    call = signature_of(member, name)
    waits = "await " if inspect.iscoroutinefunction(member) else ""
    return f"* `{waits}{call}`: {ParsedDoc(member, name).text}"


def _parts(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def agents() -> str:
    """The ways to have a conversation."""
    return _parts(
        "## Agents",
        _class(pigeon.Agent, table_text=_options_table(pigeon.Agent, AgentChoices), members=["warnings"]),
        _class(pigeon.Client, table_text=_options_table(pigeon.Client), members=["restart", "welcome", "pid"]),
        _class(pigeon.SyncAgent),
        _class(pigeon.SyncClient),
        _function(pigeon.run_sync, "run_sync"),
    )


def conversation() -> str:
    """What a conversation can do: what is written by hand, and the commands."""
    by_hand = [_function(getattr(Conversation, name), name) for name in BY_HAND]
    doc = ParsedDoc(Conversation, "Conversation")
    return _parts("## Conversation", doc.text, _example(doc), *by_hand, commands())


def commands() -> str:
    """One row for each command that is a method."""
    rows = []
    for name in (name for kind, name in NAMES.items() if kind not in command_methods.BY_HAND):
        method = getattr(Conversation, name)
        call, _, answer = signature_of(method, name).partition(" -> ")
        doc = _pythonic(" ".join(ParsedDoc(method, name).text.split()))
        rows.append((_code(call), _answer(answer), _cell(doc)))
    text = (
        "Each command of the protocol is a method with its typed answer. A command that is refused raises `Refusal` "
        "and changes nothing."
    )
    return _parts("### Commands", text, table(("method", "answer", "meaning"), rows))


def _pythonic(text: str) -> str:
    """Words of the wire in the spelling of Python: names of members, and null."""
    text = re.sub(r"`([a-z]+(?:[A-Z][a-z]*)+)`", lambda found: f"`{_snake(found[1])}`", text)
    return re.sub(r"`?\bnull\b`?", "`None`", text)


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)


def _answer(text: str) -> str:
    return re.sub(
        r"\w+", lambda found: f"[`{found[0]}`](#record-{found[0].lower()})" if found[0] != "None" else "`None`", text
    ).replace("|", "\\|")


def errors() -> str:
    """Every exception, below the one that they all are."""
    kinds = [getattr(pigeon, name) for name in pigeon.__all__]
    found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, pigeon.PigeonError)]
    found.sort(key=lambda kind: (kind is not pigeon.PigeonError, kind.__name__))
    rows = [(_code(kind.__name__), _cell(ParsedDoc(kind, kind.__name__).text.replace("\n\n", " "))) for kind in found]
    return _parts("## Errors", table(("exception", "meaning"), rows))


def batches() -> str:
    """Many tasks, and what comes of them."""
    choices = _entries_table(ParsedDoc(BatchChoices, "BatchChoices"), "option")
    rest = "The further options, besides those of `Agent`:"
    kinds = (pigeon.Task, pigeon.Workspace, pigeon.Check, pigeon.TaskResult, pigeon.CheckResult, pigeon.Rate)
    return _parts(
        "## Batches",
        _function(pigeon.batch, "batch"),
        rest,
        choices,
        _function(pigeon.batch_sync, "batch_sync"),
        *map(_class, kinds),
    )


def small_things() -> str:
    """Results, limits, tools, permissions, images, session stores, testing."""
    names = ("scripted", "call", "value", "failure", "check_session_store", "check_workspace")
    helpers = [getattr(pigeon.testing, name) for name in names]
    return _parts(
        "## Results and limits",
        _class(pigeon.Result),
        _class(pigeon.Limits),
        "## Agents that an agent starts",
        _class(pigeon.AgentType),
        _class(pigeon.SpawnedRun, members=["result", "abort"]),
        _function(pigeon.text_of, "text_of"),
        "## Tools",
        _function(pigeon.tool, "tool"),
        _class(pigeon.HostFunction, members=["name", "schema"]),
        _class(pigeon.ToolContext, members=["cancelled", "update"]),
        "## Permissions",
        _class(pigeon.PermissionRequest),
        "### PermissionAnswer",
        ALIASES["PermissionAnswer"],
        "## Images",
        "### ImageLike",
        ALIASES["ImageLike"],
        errors(),
        "## Session stores",
        _class(pigeon.SessionStore, members=STORE_METHODS),
        _class(pigeon.FileStore),
        _class(pigeon.PostgresStore, members=("open", "close", "migrate")),
        _class(pigeon.Lease),
        _class(pigeon.StoredSession),
        "## Testing",
        *[_function(one, f"pigeon.testing.{one.__name__}") for one in helpers],
    )


def python_type(hint: Any) -> str:
    """A type of a record as it is written in Python; what may be absent is told by a question mark elsewhere."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return python_type(parts[0])
    if origin in (Union, UnionType):
        named = _UNIONS.get(frozenset(part for part in parts if part is not Absent))
        shown = [python_type(part) for part in parts if part is not Absent]
        return named or " | ".join(dict.fromkeys(shown))
    if origin is Literal:
        return " | ".join(map(repr, parts))
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(python_type, parts))}]"
    return "None" if hint is NoneType else str(getattr(hint, "__name__", hint))


# Members of events that the library does not ask for, or that say nothing in Python.
_LEFT_OUT = ("seq", "partial", "type")
_WITH_NUMBERS = (events.Event, *get_args(events.StreamEvent), *get_args(dialogs.DialogRequest))
_UNIONS: dict[frozenset[Any], str] = {
    frozenset(get_args(messages.Message)): "Message",
    frozenset(get_args(events.StreamEvent)): "StreamEvent",
    frozenset(get_args(entries.AnyEntry)): "Entry",
    frozenset(get_args(entries.Entry)): "Entry",
}


def _records(title: str, kinds: Iterable[type[msgspec.Struct]], text: str = "") -> str:
    rows = []
    for kind in kinds:
        tag = kind.__struct_config__.tag
        wire = f"<br>`{tag}`" if isinstance(tag, str) else ""
        name = f'<a id="record-{kind.__name__.lower()}"></a>**{kind.__name__}**{wire}'
        rows.append((name, _members(kind), _pythonic(sentence_of(kind))))
    return _parts(f"## {title}", text, table(("record", "members", "meaning"), rows))


def _members(kind: type[msgspec.Struct]) -> str:
    hints = get_type_hints(kind, include_extras=True)
    shown = []
    for field in msgspec.structs.fields(kind):
        if field.name in _LEFT_OUT and issubclass(kind, _WITH_NUMBERS):
            continue
        hint, _ = intended_hint(hints[field.name])
        mark = "?" if Absent in get_args(hint) else ""
        shown.append(f"`{field.name}{mark}: {python_type(hint)}`".replace("|", "\\|"))
    return "<br>".join(shown)


def records() -> str:
    """All exported records, by what they are."""
    exported = [getattr(pigeon, name) for name in sorted(pigeon.__all__)]
    kinds = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    described = {pigeon.Result, pigeon.PermissionRequest, pigeon.Limits, pigeon.AgentType}

    def of(*modules: Any) -> list[type[msgspec.Struct]]:
        names = {module.__name__ for module in modules}
        return [kind for kind in kinds if kind.__module__ in names and kind not in described]

    pieces = [kind for kind in kinds if kind in get_args(events.StreamEvent)]
    told = [kind for kind in of(events) if kind in events.ALL]
    others = [kind for kind in of(events) if kind not in pieces and kind not in told and kind is not events.Event]
    unknown = [pigeon.UnknownEvent]
    return _parts(
        _records("Events", [*told, *unknown], RECORDS_HEAD),
        _records(
            "Pieces of an answer", pieces, "In place of a `message_update`, `events` and `prompt` give what it brings."
        ),
        _records("Dialogs", of(dialogs)),
        _records("Messages", of(messages)),
        _records("Content", of(content)),
        _records("Answers to commands", of(answers, agent_records, changes, mcp, services, undo)),
        _records("Other records", [*others, *of(model, steering), *of(entries)]),
    )


def page() -> str:
    """The whole page."""
    return _parts(HEAD.strip(), agents(), conversation(), batches(), small_things(), records()) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), "utf-8")
