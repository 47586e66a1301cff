"""Checks what a client of a served conversation may send: its scope, and the paths in its commands.

Each command declares both in its record (`wire/commands/`). Whatever the scope, paths must be below the roots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from pigeon.wire.commands import NAMES, Command, Scope
from pigeon.wire.errors import Refusal

if TYPE_CHECKING:
    from pigeon.frontends.serve.conversations import Conversations

SCOPES: tuple[Scope, ...] = get_args(Scope)


def covers(scope: Scope, needed: Scope) -> bool:
    """Whether a scope includes the one that is needed."""
    return SCOPES.index(scope) >= SCOPES.index(needed)


def check_command(command: Command, scope: Scope, conversations: Conversations, cwd: str) -> Command:
    """Returns the command with the paths in it as they were checked; raises `Refusal` if it may not be sent.

    `cwd` is the folder of the conversation, in which relative paths begin.
    """
    if not covers(scope, command.required_scope):
        name = NAMES[type(command)]
        raise Refusal(f"{name} needs the scope {command.required_scope}, and this token has the scope {scope}")
    checks = (
        (command.session_paths, conversations.usable_session),
        (command.output_paths, conversations.usable_output),
    )
    for fields, check in checks:
        for field in fields:
            path = getattr(command, field)
            if isinstance(path, str) and path:
                command = replace(command, **{field: check(path, cwd)})
    return command
