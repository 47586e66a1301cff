"""Texts in a shell command that are commands again: those passed to shells and to other programs that run commands, its
own commands with their braces expanded, and its pieces if its structure was not understood."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from itertools import pairwise

from pigeon.permissions.shell_programs import JOINING, READING_COMMANDS, RUNNERS
from pigeon.permissions.shell_words import ASSIGNMENT, ShellScript, ShellWord, unescape_ansi

MOST_ALTERNATIVES = 1000
MOST_EXPANDED = 512 * 1024
LONGEST_SEQUENCE = 64
_SCRIPT = re.compile(r"[\s;|&$`(<>'\"\\{]")
_READING_VALUES = frozenset({"read", "mapfile", "readarray"})
_DEFINING = frozenset({"alias", "hash", "enable"})
_SEPARATORS = re.compile(r"[;\n]|\|+|&&|(?<![<>])&(?!>)")
_OTHER_SEPARATORS = re.compile(r"[,:|%]")
_OPTION = re.compile(r"(?:-[A-Za-z]*?[Sc]|--[\w-]+=|[\w.-]+=)")
_ENV_BLANK = re.compile(r"\\[_tnvfr]")  # blanks in a text that `env -S` splits
_OPAQUE = re.compile(r"\\.|'[^']*'|\"(?>(?:[^\"\\]++|\\.)*)\"|\$\{[^}]*\}|\$\([^)]*\)", re.DOTALL)
_BRACES = re.compile("[{},]")
_SEQUENCE = re.compile(r"\{(-?\d{1,6}|[A-Za-z])\.\.(-?\d{1,6}|[A-Za-z])(?:\.\.-?\d+)?\}")


def without_assignments(words: list[ShellWord]) -> list[ShellWord]:
    """The words behind the assignments before a command; all words if there is no command."""
    first = next((at for at, word in enumerate(words) if not ASSIGNMENT.match(word.raw)), 0)
    return words[first:]


def names_defined_in(script: ShellScript) -> set[str]:
    """Names that the command redefines: functions, aliases, remembered paths of programs."""
    names = set(script.functions)
    for words in script.commands:
        if any(word.value in _DEFINING for word in words):
            names.update(word.value.partition("=")[0] for word in words)
    return names


def may_run_its_words(words: list[ShellWord], defined: Collection[str]) -> bool:
    """Whether any word of a command could be run: its name is uncertain, or something in it runs other commands."""
    named = without_assignments(words)
    return (
        not named[0].is_exact
        or named[0].value.startswith("-")
        or any(os.path.basename(word.value) in RUNNERS or word.value in defined for word in words)
    )


def scripts_in(script: ShellScript, defined: Collection[str]) -> Iterator[str]:
    """The texts in a script that the shell, or a program that it runs, may read as commands."""
    yield from script.quoted_substitutions
    yield from _other_readings(script)
    runners = [words for words in script.commands if may_run_its_words(words, defined)]
    runs_values = any(word.expands for words in runners for word in words)
    if runs_values:
        runners = script.commands  # any text may be run
    for words in runners:
        yield from _texts_handed_over(words)
    reads_values = runs_values and any(word.value in _READING_VALUES for words in script.commands for word in words)
    if reads_values or any(_runs_its_stdin(words) for words in script.commands):
        for text in (*script.documents, *_texts_printed(script)):
            yield text
            yield _OTHER_SEPARATORS.sub(" ", unescape_ansi(text))  # `xargs -d,`


def _other_readings(script: ShellScript) -> Iterator[str]:
    """Other readings of the script or its commands: lines joined, as `sh` does, in pieces, with braces expanded."""
    if "\\\n" in script.text:
        yield script.text.replace("\\\n", "")
    if "&>" in script.text:
        yield script.text.replace("&>", "& >")  # how a plain `sh` reads it
    if script.unterminated:
        pieces = _SEPARATORS.split(script.text)
        yield from pieces if len(pieces) > 1 else ()
    for words in script.commands:
        if any(word.globs and "{" in word.raw for word in words):
            expanded = _expand_braces(words)
            if expanded is None:
                script.mark_overflow()
            elif expanded != " ".join(word.raw for word in words):
                yield expanded


def _texts_printed(script: ShellScript) -> Iterator[str]:
    for words in script.commands:
        if words[0].value in ("echo", "printf"):
            yield " ".join(word.value for word in words[1:])
            yield " ".join(word.value for word in words[2:])  # behind a format or an option
            yield from (word.value for word in words[1:] if _SCRIPT.search(word.value))


def _runs_its_stdin(words: list[ShellWord]) -> bool:
    named = any(os.path.basename(word.value) in READING_COMMANDS for word in words)
    return named or without_assignments(words)[0].expands


def _texts_handed_over(words: list[ShellWord]) -> Iterator[str]:
    joined = False
    for index, word in enumerate(words):
        if not joined and os.path.basename(word.value) in JOINING:
            joined = True
            rest = [later.value for later in words[index + 1 :]]
            yield " ".join(rest)
            first = next((at for at, value in enumerate(rest) if not value.startswith("-")), 0)
            if first:  # `eval --`
                yield " ".join(rest[first:])
        option = _OPTION.match(word.value)
        if (index or word.expands) and _SCRIPT.search(word.value):
            yield word.value
            if _ENV_BLANK.search(word.value):
                yield _ENV_BLANK.sub(" ", word.value)
        if option is not None and (_SCRIPT.search(word.value) or word.value.startswith("PROMPT_COMMAND=")):
            yield _ENV_BLANK.sub(" ", word.value[option.end() :])


def _expand_braces(words: list[ShellWord]) -> str | None:
    """A command with its braces expanded; None if that results in too many words."""
    opaque: list[str] = []

    def hide_opaque_part(found: re.Match[str]) -> str:
        opaque.append(found[0])  # quoted text has no braces
        return f"\0{len(opaque) - 1}\0"

    done: list[str] = []
    waiting = [_OPAQUE.sub(hide_opaque_part, word.raw.replace("\0", "")) for word in reversed(words)]
    most, size = MOST_ALTERNATIVES + len(words), 0
    while waiting:
        text = waiting.pop()
        options = _expand_first_brace(text)
        if options is None:
            done.append(text)
            continue
        size += len(text) * (1 + len(options))
        if size > MOST_EXPANDED or len(done) + len(waiting) + len(options) > most:
            return None
        waiting.extend(reversed(options))
    return re.sub("\0(\\d+)\0", lambda found: opaque[int(found[1])], " ".join(done))


def _expand_first_brace(text: str) -> list[str] | None:
    """One text for each alternative of the first brace that has any; None if there is no such brace."""
    begins: list[list[int]] = []
    for found in _BRACES.finditer(text):
        at, sign = found.start(), found[0]
        if sign == "{":
            begins.append([at])
        elif sign == "," and begins:
            begins[-1].append(at)
        elif sign == "}" and begins:
            cuts = [*begins.pop(), at]
            if len(cuts) > MOST_ALTERNATIVES:
                return [""] * len(cuts)  # too many to examine
            if len(cuts) > 2:
                parts = [text[begin + 1 : end] for begin, end in pairwise(cuts)]
                return [text[: cuts[0]] + part + text[at + 1 :] for part in parts]
    sequence = _SEQUENCE.search(text)
    items = None if sequence is None else _items_of_sequence(sequence[1], sequence[2])
    if sequence is None or items is None:
        return None
    return [text[: sequence.start()] + item + text[sequence.end() :] for item in items]


def _items_of_sequence(first: str, last: str) -> list[str] | None:
    if first.isalpha() and last.isalpha():
        step = 1 if first <= last else -1
        return [chr(code) for code in range(ord(first), ord(last) + step, step)]
    if first.isalpha() or last.isalpha() or abs(int(first) - int(last)) >= LONGEST_SEQUENCE:
        return None
    step = 1 if int(first) <= int(last) else -1
    return [str(number) for number in range(int(first), int(last) + step, step)]
