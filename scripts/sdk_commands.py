"""The methods of `pigeon.Conversation` and `pigeon.SyncAgent`, one for each command, and what `pigeon` exports.

Written from the records of the wire, so that a new command is a method without further work; `make sdk` runs this, and
a test holds the files in step. Required members are positional in the order of their declaration, the others are
keywords, and `None` there means that the member is not sent.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from pigeon.wire import answers, commands, content, dialogs, entries, errors, events, messages, model, steering
from pigeon.wire.base import Absent, intended_hint
from pigeon.wire.commands import Command, changes, mcp, services

COMMANDS = "pigeon.wire.commands"
SOURCE = Path(__file__).resolve().parent.parent / "src" / "pigeon"
# What a conversation does itself: it starts and follows prompts, takes images in more forms, and answers questions.
BY_HAND = (
    commands.Prompt, commands.Steer, commands.FollowUp, commands.HostToolUpdate, commands.HostToolResult,
    commands.ExtensionUiResponse,
)  # fmt: skip
HEADER = '"""{title} Made by `scripts/sdk_commands.py`; do not edit."""\n'
_RECORDS = (events, dialogs, messages, content, answers, model, steering, entries, changes, mcp, services)
# Of the wire's modules what is no record, or a record that only dialects make or see.
_LEFT_OUT = {"Command", "Response", "Record", "Event", "ToolCallStarted"}


def methods(*, sync: bool) -> str:
    """The module with one method for each command."""
    used: set[type] = set()
    made = [_method(kind, used, sync) for kind in commands.ALL if kind not in BY_HAND]
    name = "SyncCommandMethods" if sync else "CommandMethods"
    doc = "Every command as a method that waits for its answer." if sync else "Every command as a method."
    base = [
        "    @abstractmethod",
        f"    {'def' if sync else 'async def'} send(self, command: commands.Command) -> Any:",
        '        """Send a command; returns its answer, raises a `Refusal` where it is refused."""',
    ]
    lines = [
        HEADER.format(
            title="The commands of the protocol as methods" + (", for code without a loop." if sync else ".")
        ),
        "from __future__ import annotations\n",
        "from abc import ABC, abstractmethod",
        "from typing import Any, Literal, TypeVar, cast\n",
        *_imports(used),
        "",
        '_T = TypeVar("_T")\n\n',
        f"class {name}(ABC):",
        f'    """{doc}"""\n',
        *base,
        "",
        "\n\n".join(made),
        "",
        "",
        "def _given(value: _T | None) -> _T | Absent:",
        "    return ABSENT if value is None else value",
        "",
    ]
    return formatted("\n".join(lines))


def _imports(used: set[type]) -> list[str]:
    by_module: dict[str, set[str]] = {}
    for kind in used:
        module = COMMANDS if kind.__module__.startswith(f"{COMMANDS}.") else kind.__module__
        by_module.setdefault(module, set()).add(kind.__name__)
    lines = ["from pigeon.wire import commands", "from pigeon.wire.base import ABSENT, Absent"]
    return lines + [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(by_module.items())]


def _method(kind: type[Command], used: set[type], sync: bool) -> str:
    hints = get_type_hints(kind, include_extras=True)
    members = [one for one in fields(kind) if one.name != "id"]
    required = [one for one in members if _is_required(one, hints[one.name])]
    optional = [one for one in members if one not in required]
    parameters = ["self", *(f"{one.name}: {_shown(hints[one.name], used)}" for one in required)]
    if optional:
        parameters += ["*", *(_keyword(one, hints[one.name], used) for one in optional)]
    given = [f"{one.name}={one.name}" for one in required]
    given += [f"{one.name}={_passed(one, kind)}" for one in optional]
    answer = "None" if kind.answer in (None, NoReturn) else _source(kind.answer, used)
    call = f"self.send(commands.{kind.__name__}({', '.join(given)}))"
    call = call if sync else f"await {call}"
    body = call if answer == "None" else f'return cast("{answer}", {call})'
    doc = _doc(kind.__doc__ or "")
    name = commands.NAMES[kind]
    return (
        f"    {'def' if sync else 'async def'} {name}({', '.join(parameters)}) -> {answer}:\n"
        f'        """{doc}"""\n        {body}'
    )


def _doc(text: str) -> str:
    """A docstring, filled anew: it stands deeper in than where it was written."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    filled = "\n\n".join(
        textwrap.fill(part, 112, subsequent_indent=" " * 8, initial_indent=" " * 8) for part in paragraphs
    ).strip()
    return filled + ("\n" + " " * 8 if "\n" in filled else "")


def _is_required(member: FieldInfo, hint: Any) -> bool:
    intended, declared = intended_hint(hint)
    if declared:
        return Absent not in get_args(intended) and intended is not Absent
    return member.default is NODEFAULT and member.default_factory is NODEFAULT


def _keyword(member: FieldInfo, hint: Any, used: set[type]) -> str:
    default = _default(member)
    if default is not None:
        return f"{member.name}: {_shown(hint, used)} = {default!r}"
    shown = _shown(hint, used)
    return f"{member.name}: {shown} = None" if shown.endswith("| None") else f"{member.name}: {shown} | None = None"


def _default(member: FieldInfo) -> Any:
    plain = member.default is not NODEFAULT and not isinstance(member.default, Absent)
    return member.default if plain else None


def _passed(member: FieldInfo, kind: type[Command]) -> str:
    sent = _default(member) is not None or member.name in kind.nullable
    return member.name if sent else f"_given({member.name})"


def _shown(hint: Any, used: set[type]) -> str:
    return _source(intended_hint(hint)[0], used)


def _source(hint: Any, used: set[type]) -> str:
    """A type as it is written."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated or origin is ClassVar:
        return _source(parts[0], used)
    if origin in (Union, types.UnionType):
        return " | ".join(_source(part, used) for part in parts if part is not Absent)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(_source(part, used) for part in parts)}]"
    if hint is type(None) or hint is None:
        return "None"
    if hint is Any:
        return "Any"
    if isinstance(hint, type) and issubclass(hint, Struct):
        used.add(hint)
    return str(hint.__name__)


def exported_records() -> dict[str, str]:
    """The records that programs meet in events and answers, each with its module."""
    found: dict[str, str] = {}
    for module in _RECORDS:
        for name, value in vars(module).items():
            own = isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__
            own = own and not issubclass(value, Command)
            if own and not name.startswith("_") and name not in _LEFT_OUT:
                found[name] = module.__name__
    found |= {"Event": events.__name__, "StreamEvent": events.__name__, "Message": messages.__name__}
    found |= {"DialogRequest": dialogs.__name__}
    failures = (errors.PigeonError, errors.Refusal, errors.StartupError)
    return found | {kind.__name__: errors.__name__ for kind in failures}


def package(text: str) -> str:
    """The package's own module with the names of the records brought up to date."""
    names = exported_records()
    by_module: dict[str, list[str]] = {}
    for name, module in names.items():
        by_module.setdefault(module, []).append(name)
    typed = [
        f"    from {module} import {name} as {name}"
        for module in sorted(by_module)
        for name in sorted(by_module[module])
    ]
    rows = [f'    "{module}": {_wrapped(sorted(by_module[module]))},' for module in sorted(by_module)]
    text = _between(text, "    # records\n", "    # end of records\n", "\n".join(typed))
    return formatted(_between(text, "    # lazy records\n", "    # end of lazy records\n", "\n".join(rows)))


def _wrapped(names: list[str]) -> str:
    lines = textwrap.wrap(" ".join(names), 100, break_on_hyphens=False)
    return (
        "(" + "\n".join(f'"{line} "' for line in lines) + ")"
        if len(lines) > 1 or len(lines[0]) > 88
        else f'"{lines[0]}"'
    )


def _between(text: str, start: str, end: str, filling: str) -> str:
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}{filling}\n{end}{after}"


def formatted(source: str) -> str:
    """The source as `ruff format` has it, imports in order."""
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    name = ["--stdin-filename", "src/pigeon/sdk/commands.py"]
    for step in (
        ["check", "-q", "--fix", "--exit-zero", "--select", "I,F401", *name, "-"],
        ["format", "-q", *name, "-"],
    ):
        source = subprocess.run([*ruff, *step], input=source, text=True, capture_output=True, check=True).stdout
    return source


def files() -> dict[Path, str]:
    """Every file that is made, with what it should hold."""
    init = SOURCE / "__init__.py"
    return {
        SOURCE / "sdk" / "commands.py": methods(sync=False),
        SOURCE / "sdk" / "sync_commands.py": methods(sync=True),
        init: package(init.read_text("utf-8")),
    }


def main() -> None:
    """Write them."""
    for path, text in files().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
