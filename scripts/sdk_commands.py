"""The methods of conversations for type checkers and editors (`sdk/commands.pyi`), and what `pigeon` exports.

Written from the records of the wire, so that a new command is a method without further work; `make sdk` runs this, and
a test holds the files in step. At run time `sdk/command_methods.py` makes the same methods.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from inspect import Parameter
from pathlib import Path

from msgspec import Struct

from pigeon.sdk.command_methods import BY_HAND, signature_of
from pigeon.wire import agents, answers, commands, content, dialogs, entries, errors, events, messages, model, steering
from pigeon.wire.commands import Command, changes, mcp, services, undo

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pigeon"
STUB = SOURCE / "sdk" / "commands.pyi"
HEADER = "# Made by `scripts/sdk_commands.py`; do not edit.\n"
_RECORDS = (events, dialogs, messages, content, answers, agents, model, steering, entries, changes, mcp, services, undo)
# Of the wire's modules what is no record, or a record that only dialects make or see.
_LEFT_OUT = {"Command", "Response", "Record", "Event", "ToolCallStarted", "CommandsChanged", "AgentEvent"}


def stub() -> str:
    """The classes of `sdk/commands.py` with one method for each command."""
    classes = [
        _class("CommandMethods", "Every command as a method.", "async def"),
        _class("SyncCommandMethods", "Every command as a method that waits for its answer.", "def"),
    ]
    body = "\n\n".join(classes)
    lines = [
        HEADER,
        "from abc import ABC, abstractmethod",
        "from typing import Any, Literal\n",
        *_imports(body),
        "",
        body,
    ]
    return formatted("\n".join(lines), STUB)


def _imports(body: str) -> list[str]:
    """The records that are named in the text."""
    places = {name: commands.__name__ for name, kind in vars(commands).items() if isinstance(kind, type)}
    places |= {kind.__name__: kind.__module__ for kind in _exported_kinds()}
    named = set(re.findall(r"\b[A-Z]\w+", body))
    return [f"from {places[name]} import {name}" for name in sorted(named & places.keys())]


def _class(name: str, doc: str, keyword: str) -> str:
    lines = [
        f"class {name}(ABC):",
        f'    """{doc}"""\n',
        "    @abstractmethod",
        f"    {keyword} send(self, command: Command) -> Any:",
        '        """Send a command; returns its answer, raises a `Refusal` where it is refused."""',
    ]
    return "\n".join([*lines, *(_method(kind, keyword) for kind in commands.ALL if kind not in BY_HAND)])


def _method(kind: type[Command], keyword: str) -> str:
    signature = signature_of(kind)
    shown = [_parameter(one) for one in signature.parameters.values()]
    first = next((at for at, one in enumerate(signature.parameters.values()) if one.kind is one.KEYWORD_ONLY), None)
    if first is not None:
        shown.insert(first, "*")
    head = f"    {keyword} {commands.NAMES[kind]}({', '.join(shown)}) -> {signature.return_annotation}:"
    return f'{head}\n        """{_doc(kind.__doc__ or "")}"""'


def _parameter(one: Parameter) -> str:
    hint = "" if one.annotation is one.empty else f": {one.annotation}"
    return f"{one.name}{hint}" if one.default is one.empty else f"{one.name}{hint} = {one.default!r}"


def _doc(text: str) -> str:
    """A docstring, filled anew: it stands deeper in than where it was written."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    filled = "\n\n".join(
        textwrap.fill(part, 112, subsequent_indent=" " * 8, initial_indent=" " * 8) for part in paragraphs
    ).strip()
    return filled + ("\n" + " " * 8 if "\n" in filled else "")


def _exported_kinds() -> list[type[Struct]]:
    """The records that programs meet in events and answers."""
    found: list[type[Struct]] = []
    for module in _RECORDS:
        for name, value in vars(module).items():
            own = isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__
            if own and not issubclass(value, Command) and not name.startswith("_") and name not in _LEFT_OUT:
                found.append(value)
    return found


def exported_records() -> dict[str, str]:
    """What is exported besides what the library itself declares: records, unions and errors, each with its module."""
    found = {kind.__name__: kind.__module__ for kind in _exported_kinds()}
    found |= {"Event": events.__name__, "StreamEvent": events.__name__, "Message": messages.__name__}
    found |= {"DialogRequest": dialogs.__name__, "text_of": content.__name__}
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
    return formatted(
        _between(text, "    # lazy records\n", "    # end of lazy records\n", "\n".join(rows)), SOURCE / "__init__.py"
    )


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


def formatted(source: str, path: Path) -> str:
    """The source as `ruff format` has it, imports in order."""
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    name = ["--stdin-filename", str(path)]
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
        STUB: stub(),
        init: package(init.read_text("utf-8")),
    }


def main() -> None:
    """Write them."""
    for path, text in files().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
