"""The texts of a permission question in oh-my-pi, whose clients read the tool and the command out of them.

The first line names the tool, the others are about the arguments that matter for it. What the model can write at will
comes last, so that it cannot pass for one of these lines.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from msgspec.structs import replace

from pigeon.wire.base import Absent, Json
from pigeon.wire.dialogs import APPROVE, DENY, SelectRequest
from pigeon.wire.errors import to_printable

Arguments = dict[str, Json]
LONGEST = 2000
OUTSIDE = "Reason: The command is to run outside the sandbox"


def _describe_command(arguments: Arguments) -> list[str]:
    outside = [OUTSIDE] if arguments.get("unsandboxed") is True else []
    return [*outside, f"Command: {_shorten(_text_of(arguments, 'command', '(missing)'))}"]


def _describe_writing(arguments: Arguments) -> list[str]:
    path, content = _text_of(arguments, "path", "(missing)"), _text_of(arguments, "content", "")
    return [f"Path: {_shorten(path)}", f"Content:\n{_shorten(content)}"]


def _describe_editing(arguments: Arguments) -> list[str]:
    return [f"File: {_shorten(_text_of(arguments, 'path', '') or '(unknown)')}"]


def _describe_task(arguments: Arguments) -> list[str]:
    kind, prompt = _text_of(arguments, "agent", ""), _text_of(arguments, "prompt", "")
    return [*([f"Agent: {_shorten(kind)}"] if kind else []), f"Task:\n{_shorten(prompt)}"]


# The tools that say more than their name.
_DETAILS: MappingProxyType[str, Callable[[Arguments], list[str]]] = MappingProxyType(
    {"bash": _describe_command, "write": _describe_writing, "edit": _describe_editing, "task": _describe_task}
)


def to_approval_question(request: SelectRequest) -> SelectRequest:
    """A question about permission with the title and the options of oh-my-pi; other questions, and one that has them
    already, are unchanged."""
    if isinstance(request.tool_name, Absent) or isinstance(request.tool_call_id, Absent):
        return request
    if request.options == [APPROVE, DENY]:
        return request
    arguments = {} if isinstance(request.args, Absent) else request.args
    agent = "" if isinstance(request.agent, Absent) else request.agent
    return replace(request, title=format_approval_title(request.tool_name, arguments, agent), options=[APPROVE, DENY])


def format_approval_title(tool: str, arguments: Arguments, agent: str = "") -> str:
    """The title of the question about a call, which may be one of a started agent of this type."""
    describe = _DETAILS.get(tool)
    whose = [f"Agent: {agent}"] if agent else []
    return _replace_invisible("\n".join([f"Allow tool: {tool}", *whose, *(describe(arguments) if describe else [])]))


def _text_of(arguments: Arguments, name: str, default: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else default


def _shorten(text: str) -> str:
    """The beginning of a long text, with the number of characters that are left out, counted as in JavaScript."""
    if len(text) * 2 <= LONGEST:
        return text
    units = text.encode("utf-16-le", "surrogatepass")
    left_out = len(units) // 2 - LONGEST
    if left_out <= 0:
        return text
    return f"{units[: 2 * LONGEST].decode('utf-16-le', 'replace')}[…{left_out}ch elided…]"


def _replace_invisible(text: str) -> str:
    """Replaces what screens do not show, or show as a change of direction, so that it cannot hide anything."""
    return "\r\n".join(to_printable(part) for part in text.split("\r\n"))
