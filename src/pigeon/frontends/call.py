"""One call of the program as front ends receive it: the parsed options of an agent, or a command with its words.

A command is declared once, here; help pages and shell completions are made from the declarations. `cli` parses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pigeon.app.options import AgentOptions
from pigeon.system.environment import Environment

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pigeon.secrets.redactor import Redactor

# (names, metavar, help). A metavar ending in "..." may be given several times, one in brackets may be omitted, and an
# empty one makes the option a switch. An empty help text hides the option.
Row = tuple[str, str, str]
HELP: Row = ("--help -h", "", "show this help")
JSON: Row = ("--json", "", "print JSON instead of text")


class CommandLine(Struct, frozen=True, kw_only=True):
    """One call of the program: how it was called, what it shall do, and the options of its agent.

    `literal` are the messages behind `--`, which are text whatever they begin with. `unknown` are options that are not
    in the table; `known` are those that are. `parse_again` parses the same words once the options of extensions, and
    whether they take a value, are known. `own_options` returns the options of the agent with their values, except for
    those named, to start another process of it.
    """

    program: str
    arguments: tuple[str, ...]
    agent: AgentOptions
    api_key_file: str | None
    mode: str | None
    print: bool
    output: str | None
    output_schema: str | None
    messages: tuple[str, ...]
    literal: tuple[str, ...]
    dialect: str | None
    socket: str | None
    connect: str | None
    record_cap: str | None
    no_ui: bool
    verbose: bool
    trace: str | None
    plain: bool
    list_models: str | None
    export: tuple[str, ...]
    help: bool
    version: bool
    unknown: tuple[str, ...]
    known: tuple[str, ...]
    parse_again: Callable[[Mapping[str, bool]], CommandLine]
    own_options: Callable[[Sequence[str]], list[str]]


class Action(Struct, frozen=True):
    """One thing that a command can do. Arguments in brackets may be left out; `...` takes all remaining words."""

    name: str
    arguments: tuple[str, ...]
    summary: str


class CommandCall(Struct, frozen=True):
    """A call of a command: what to do, with which words and options, and where.

    `parse_agent` parses the options of an agent that are given to a command which starts agents. `redactor` has the
    keys that are masked in the output; `mask` masks a text that is shortened before it is printed. `keep_links` is a
    context: what is printed in it keeps its addresses, for a person to open them.
    """

    action: str
    words: tuple[str, ...]
    options: Mapping[str, Any]
    environment: Environment
    parse_agent: Callable[[Sequence[str]], CommandLine]
    redactor: Redactor
    mask: Callable[[str], str]
    keep_links: Callable[[], AbstractContextManager[None]]

    def word_at(self, index: int) -> str:
        """The word at an index, or an empty string if it was left out."""
        return self.words[index] if index < len(self.words) else ""

    def has_option(self, option: str) -> bool:
        return bool(self.options.get(option))


# How the output of a command is masked: everything that may be a key in what it shows of the configuration; the keys
# that are known, and those in addresses by their place; only those that are known, because it prints links that open
# something; or not at all, because it reads nothing.
OutputKind = Literal["configuration", "text", "links", "fixed"]


class CommandDeclaration(Struct, frozen=True, kw_only=True):
    """A command: its name, what it does, and how it is called. The first action needs no name.

    `examples` are calls with descriptions; `notes` end the help page.
    """

    name: str
    summary: str
    run: Callable[[CommandCall], int]
    actions: tuple[Action, ...]
    options: tuple[Row, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    notes: str = ""
    output: OutputKind = "text"

    @property
    def rows(self) -> list[Row]:
        """Its options, and `--help`, which every command has."""
        return [*self.options, HELP]
