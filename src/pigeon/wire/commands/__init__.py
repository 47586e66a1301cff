"""Every command a host may send: its arguments, its lane, its scope and the shape of its answer, declared once.

Lanes define what a command may wait for; `rpc/lanes.py` runs them. `control` never waits, not even for a host that
stopped reading. `session` commands run one after the other in order of arrival, so `set_model` then `prompt` cannot
race. `beside` commands start in order and finish whenever they finish. `wire/codec.py` makes commands of lines by
`BY_NAME`, and `rpc/router.py` finds the handler by the class.

The modules of this package hold them by subject; everything is imported from here.
"""

# ruff: noqa: F403

from __future__ import annotations

from pigeon.wire.commands.agents import *
from pigeon.wire.commands.agents import AGENTS
from pigeon.wire.commands.base import *
from pigeon.wire.commands.base import Command
from pigeon.wire.commands.changes import *
from pigeon.wire.commands.changes import CHANGES
from pigeon.wire.commands.conversation import *
from pigeon.wire.commands.conversation import CONVERSATION
from pigeon.wire.commands.host import *
from pigeon.wire.commands.host import HOST
from pigeon.wire.commands.mcp import *
from pigeon.wire.commands.mcp import MCP
from pigeon.wire.commands.services import *
from pigeon.wire.commands.services import SERVICES
from pigeon.wire.commands.sessions import *
from pigeon.wire.commands.sessions import SESSIONS
from pigeon.wire.commands.undo import *
from pigeon.wire.commands.undo import UNDO

ALL: tuple[type[Command], ...] = (*CONVERSATION, *SESSIONS, *CHANGES, *UNDO, *HOST, *SERVICES, *MCP, *AGENTS)
NAMES: dict[type[Command], str] = {command: str(command.__struct_config__.tag) for command in ALL}
OLD_NAMES = {old: name for command, name in NAMES.items() for old in command.older_names}
SILENT_NAMES = frozenset(name for command, name in NAMES.items() if command.silent)
READING_NAMES = frozenset(name for command, name in NAMES.items() if command.effect == "reads")
# Under every name: what may be sent again when it is not known whether it was done.
REPEATABLE_NAMES = frozenset(
    one for command, name in NAMES.items() if command.effect != "acts" for one in (name, *command.older_names)
)
BY_NAME: dict[str, type[Command]] = {name: command for command, name in NAMES.items()}
