"""Parses the call of a command: the words and options behind its name, checked against its declaration."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.cli.args import make_parser, option_names, parse_arguments
from pigeon.cli.masked_output import OutputMasker
from pigeon.frontends.call import Action, CommandCall, CommandDeclaration
from pigeon.frontends.printing import did_you_mean
from pigeon.system.environment import Environment
from pigeon.wire.errors import UsageError


def parse_command_call(
    command: CommandDeclaration, arguments: Sequence[str], environment: Environment, masker: OutputMasker
) -> CommandCall:
    """The call of a command with these arguments; raises `UsageError`."""
    known, literal = list(arguments), []
    if "--" in known:
        at = known.index("--")
        known, literal = known[:at], known[at + 1 :]
    found, rest = make_parser(command.rows).parse_known_args(known)
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
    _check_argument_count(command, action, words)
    options = {name: value for name, value in vars(found).items() if name != "messages"}
    masking = masker.redactor, masker.mask_text, masker.keep_links
    return CommandCall(action.name, tuple(words), options, environment, parse_arguments, *masking)


def _check_argument_count(command: CommandDeclaration, action: Action, words: Sequence[str]) -> None:
    needed = [one for one in action.arguments if not one.startswith("[")]
    called = " ".join(["pigeon", command.name, *filter(None, [action.name])])
    if len(words) < len(needed):
        raise UsageError(f"{called} needs {needed[len(words)].strip('.')}. See: pigeon help {command.name}")
    endless = any("..." in one for one in action.arguments)
    if len(words) > len(action.arguments) and not endless:
        extra = words[len(action.arguments)]
        raise UsageError(f'{called} does not know what to do with "{extra}". See: pigeon help {command.name}')
