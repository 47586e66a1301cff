"""One command as it is declared, and one call of it: the words and options behind its name, checked against that.

Help pages and the completions of shells are made from the declarations, so a command says everything about itself once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from pigeon.cli.args import Row, option_names, parser
from pigeon.frontends.printing import did_you_mean
from pigeon.system.environment import Environment
from pigeon.wire.errors import UsageError

HELP: Row = ("--help -h", "", "show this help")


class Action(Struct, frozen=True):
    """One thing that a command can do. Arguments in brackets may be left out; `...` takes all words that follow."""

    name: str
    arguments: tuple[str, ...]
    summary: str


class CommandCall(Struct, frozen=True):
    """A call of a command: what to do, with which words and options, and where."""

    action: str
    words: tuple[str, ...]
    options: Mapping[str, Any]
    environment: Environment

    def word(self, index: int) -> str:
        """A word that may have been left out; empty then."""
        return self.words[index] if index < len(self.words) else ""

    def has(self, option: str) -> bool:
        """Whether a switch was given."""
        return bool(self.options.get(option))


class CommandDeclaration(Struct, frozen=True, kw_only=True):
    """A command: its name, what it does, and how it is called. The first action is the one that needs no name.

    `examples` are calls with what they do; `notes` end its help page.
    """

    name: str
    summary: str
    run: Callable[[CommandCall], int]
    actions: tuple[Action, ...]
    options: tuple[Row, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    notes: str = ""

    @property
    def rows(self) -> list[Row]:
        """Its options, with the one that every command has."""
        return [*self.options, HELP]


def call_of(command: CommandDeclaration, arguments: Sequence[str], environment: Environment) -> CommandCall:
    """The call that the arguments behind the name of a command make; raises `UsageError`."""
    known, literal = list(arguments), []
    if "--" in known:
        at = known.index("--")
        known, literal = known[:at], known[at + 1 :]
    found, rest = parser(command.rows).parse_known_args(known)
    for word in rest:
        if word.startswith("-") and word != "-":
            option = word.partition("=")[0]
            meant = did_you_mean(option, option_names(command.rows))
            raise UsageError(f"pigeon {command.name} has no option {option}.{meant} See: pigeon help {command.name}")
    words = [*found.messages, *rest, *literal]
    action = command.actions[0]
    if len(command.actions) > 1 or action.name:
        named = {one.name: one for one in command.actions}
        if words and words[0] in named:
            action = named[words.pop(0)]
        elif words and (len(words) > len(action.arguments) or not action.arguments):
            meant = did_you_mean(words[0], [name for name in named if name])
            raise UsageError(
                f'pigeon {command.name} cannot "{words[0]}".{meant} See: pigeon help {command.name}\n'
                f'To send these words as a prompt, put them in quotes: pigeon "{command.name} {" ".join(words)}"'
            )
    _check_count(command, action, words)
    options = {name: value for name, value in vars(found).items() if name != "messages"}
    return CommandCall(action.name, tuple(words), options, environment)


def _check_count(command: CommandDeclaration, action: Action, words: Sequence[str]) -> None:
    needed = [one for one in action.arguments if not one.startswith("[")]
    called = " ".join(["pigeon", command.name, *filter(None, [action.name])])
    if len(words) < len(needed):
        raise UsageError(f"{called} needs {needed[len(words)].strip('.')}. See: pigeon help {command.name}")
    endless = any("..." in one for one in action.arguments)
    if len(words) > len(action.arguments) and not endless:
        extra = words[len(action.arguments)]
        raise UsageError(f'{called} does not know what to do with "{extra}". See: pigeon help {command.name}')
