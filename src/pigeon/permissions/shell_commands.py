"""One shell command as permission rules see it; `rules.py` decides with the results.

Three questions are asked of a command: could it run what a rule denies, does it do nothing but what rules allow, and
which files do its redirections open. Each has a module of its own; they share the result of `shell_syntax`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from pigeon.permissions.allowed_commands import is_covered
from pigeon.permissions.handed_scripts import names_defined_in, scripts_in
from pigeon.permissions.possible_commands import PossibleCommands, is_plain_command
from pigeon.permissions.redirected_files import RedirectedFiles
from pigeon.permissions.shell_syntax import read_script
from pigeon.permissions.shell_words import MOST_WORDS, ShellScript

DEEPEST_SCRIPT = 8


class ShellCommand:
    """A command; each reading of it is made when a rule needs it."""

    def __init__(self, command: str, variables: Mapping[str, str]) -> None:
        self._command = command
        self._variables = variables

    @cached_property
    def _script(self) -> ShellScript:
        return read_script(self._command, self._variables)

    @cached_property
    def _scripts(self) -> list[ShellScript]:
        """The command, and the texts in it that are passed to a shell."""
        if is_plain_command(self._command):
            return [self._script]
        found: list[ShellScript] = []
        waiting = [(self._script, 0)]
        if len(self._script.variables) > len(self._variables) + 1:  # some may be used before they are set
            waiting.append((read_script(self._command, self._script.variables), 0))
        word_count, defined = self._script.word_count, set[str]()
        while waiting:
            script, depth = waiting.pop()
            found.append(script)
            defined |= names_defined_in(script)
            for text in dict.fromkeys(scripts_in(script, defined)):
                if depth == DEEPEST_SCRIPT or word_count > MOST_WORDS:
                    script.mark_overflow()
                    break
                inner = read_script(text, {**self._variables, **script.variables})
                word_count += inner.word_count
                waiting.append((inner, depth + 1))
        return found

    @cached_property
    def _possible(self) -> PossibleCommands:
        return PossibleCommands(self._command, self._scripts)

    @property
    def has_overflowed(self) -> bool:
        """True if the command is too large or too deep for its readings to be complete."""
        return any(script.overflow for script in self._scripts) or self._possible.are_too_many

    def can_run(self, pattern: str) -> bool:
        """Whether the command could run anything that a pattern of a denying or asking rule matches."""
        return self._possible.can_match(pattern)

    def find_files(self, cwd: str, home: str, access: str) -> list[str] | None:
        """The absolute paths that redirections write or read; None if there are too many, or a name may be any."""
        return RedirectedFiles(self._scripts, cwd, home).find_paths(access)

    def is_covered(self, patterns: Sequence[str]) -> bool:
        """Whether patterns of allowing rules cover everything that the command does, as far as that is certain."""
        return is_covered(self._script, patterns)
