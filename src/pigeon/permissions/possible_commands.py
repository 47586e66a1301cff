"""Every command that a shell command could run, for denying and asking rules.

A rule is matched against the command as written, cut at every character that can separate commands, and as
`shell_syntax` reads it. If it is uncertain what is run, more counts as possible: behind a program that runs others, a
function, an alias or a computed name, each word may be a command; and such a name may be any that occurs in the
command.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from pigeon.permissions.allowed_commands import REDIRECTION_SIGNS, normalize_pattern
from pigeon.permissions.handed_scripts import may_run_its_words, names_defined_in, without_assignments
from pigeon.permissions.shell_programs import FINDING, FINDING_OPTIONS, RUNNERS
from pigeon.permissions.shell_syntax import KEYWORDS
from pigeon.permissions.shell_words import ASSIGNMENT, ShellScript, ShellWord
from pigeon.system.globs import Matcher, compile_any_text_glob, compile_text_glob

MOST_UNCERTAIN = 1000
LONGEST_GLOB = 200
_CUTS = re.compile(r"&&|\|\||[;|&\n(){}`]|\$\(|<\(|>\(")
_SPACES = re.compile(r"[^\S\0]+")
_QUOTES = str.maketrans("", "", "'\"\\")
_ONE_READING = re.compile(r"([a-z][\w-]*+)(?>(?: [\w./:@%+,-]++)*)", re.ASCII)
_NAME = re.compile(r"\w[\w.+-]*")
_PART_OF_NAME = re.compile(r"\w+")
_POSIX_CLASS = re.compile(r"\[\[:\w+:\]\]")
_FIND_OPTIONS = (*FINDING_OPTIONS, "-x", "-X")


class _PatternMatchers(Struct, frozen=True):
    """A pattern of a rule, its program name, and matchers for whole texts and for parts of texts."""

    name: str
    forms: list[str]
    among: list[Matcher]
    inside: list[Matcher]


@lru_cache(maxsize=4096)
def _matchers_of(pattern: str) -> _PatternMatchers:
    plain = normalize_pattern(pattern)
    name, _, rest = plain.partition(" ")
    # Options may come between a program's name and the rest of a rule: `git -C x push`.
    forms = [plain, f"{name} -* {rest}"] if rest and not rest.startswith("*") else [plain]
    if rest == "*":  # without any argument it is the same program
        forms.append(name)
    inside = [compile_any_text_glob(f"*{sign}{form}") for form in forms for sign in " /"]
    return _PatternMatchers(name, forms, [compile_any_text_glob(form) for form in forms], inside)


class PossibleCommands:
    """Texts of all commands that could be run, and of texts that could contain one."""

    def __init__(self, command: str, scripts: Sequence[ShellScript]) -> None:
        self._texts: dict[str, None] = {}
        self._behind: dict[str, None] = {}  # each word in these may be a command
        self._uncertain: dict[tuple[str, str], None] = {}  # shapes of computed names, with the text that follows
        self._names: dict[str, None] = {}
        self._defined = {name for script in scripts for name in names_defined_in(script)}
        command = command.replace("\0", " ")
        self._add_text(_SPACES.sub(" ", command).strip())
        if not is_plain_command(command):
            for piece in dict.fromkeys(_CUTS.sub("\0", command).split("\0")):
                self._add_words(piece.split())
                self._add_words(piece.translate(_QUOTES).split())
            for script in scripts:
                self._add_script(script)
        self._joined_texts = _join_texts(self._texts)
        self._joined_behind = _join_texts(self._behind)
        self._joined_names = ""
        if self._uncertain:
            names = _join_texts((*_names_in(command), *self._names))
            self._joined_names = names + names.lower()  # `${x,,}`

    @property
    def are_too_many(self) -> bool:
        return len(self._uncertain) > MOST_UNCERTAIN

    def can_match(self, pattern: str) -> bool:
        """Whether a pattern of a denying or asking rule matches any of them."""
        matchers = _matchers_of(pattern)
        return (
            any(matches(self._joined_texts) for matches in matchers.among)
            or (bool(self._behind) and any(matches(self._joined_behind) for matches in matchers.inside))
            or any(self._can_match_shape(shape, rest, matchers) for shape, rest in self._uncertain)
        )

    def _can_match_shape(self, shape: str, rest: str, matchers: _PatternMatchers) -> bool:
        """Whether a command whose name has this shape could match a pattern."""
        if not shape.strip("*"):
            if not compile_any_text_glob(matchers.name)(self._joined_names):
                return False
        elif not compile_text_glob(shape)(matchers.name):
            return False
        text = f"{matchers.name} {rest}".rstrip()
        return any(compile_text_glob(form, classes=False)(text) for form in matchers.forms)

    def _add_script(self, script: ShellScript) -> None:
        separators = str.maketrans(dict.fromkeys(script.variables["IFS"], " "))
        for words in script.commands:
            values = " ".join(
                word.value.translate(separators) if word.expands else word.value for word in words
            ).split()
            runs_words = may_run_its_words(words, self._defined)
            self._add_words(values, runs_words)
            self._add_words([word.raw for word in words])
            named = without_assignments(words)
            self._add_words(" ".join(word.value for word in named).split(), runs_words)
            self._add_uncertain_names(named, runs_words)
            self._names.update(dict.fromkeys(_names_in(" ".join(values))))
        for redirection in script.redirections:
            self._add_text(f"{REDIRECTION_SIGNS.get(redirection.operator, '<')} {redirection.target.value}")
        self._names.update(dict.fromkeys(_names_in("\n".join(script.documents))))

    def _add_uncertain_names(self, words: list[ShellWord], runs_words: bool) -> None:
        name = os.path.basename(words[0].value)
        first_run = _index_of_find_command([word.value for word in words]) if name in FINDING else 1
        for at, word in enumerate(words if runs_words else words[:1]):
            if word.is_exact or word.shape.endswith("/") or 0 < at < first_run:
                continue
            if at and not word.expands and "/" not in word.raw:
                continue
            if len(self._uncertain) > MOST_UNCERTAIN:
                return
            shape = _POSIX_CLASS.sub("?", os.path.basename(word.shape).replace("[^", "[!"))
            rest = " ".join(" ".join(later.value for later in words[at + 1 :]).split())
            self._uncertain[shape if len(shape) <= LONGEST_GLOB else "*", rest] = None

    def _add_text(self, text: str) -> None:
        self._texts[text] = None

    def _add_words(self, words: Sequence[str], runs_words: bool = False) -> None:
        """Add a command by its words: as it is, without its prefixes, and without the folder of the program."""
        self._add_text(" ".join(words))
        first = next((at for at, word in enumerate(words) if not _precedes_command(word)), len(words))
        if first == len(words):
            return
        name, rest = os.path.basename(words[first]), words[first + 1 :]
        self._add_text(" ".join(words[first:]))
        self._add_text(" ".join((name, *rest)))
        if sys.platform == "darwin":  # names of programs are not case-sensitive there
            self._add_text(" ".join((name.lower(), *rest)))
        if rest and (runs_words or _may_run_following_words(words[first], name, self._defined)):
            self._add_arguments_run_later(name, rest)

    def _add_arguments_run_later(self, name: str, words: Sequence[str]) -> None:
        if name in FINDING:
            words = words[_index_of_find_command(words) :]
        text = " ".join(("", *words))
        for behind in (text, text.replace("=", " ")):  # `alias`, `env -S`
            self._behind[behind] = None
            if " {}" not in behind:
                self._behind[f"{behind} {{}}"] = None  # words that `xargs` adds


def is_plain_command(command: str) -> bool:
    """Whether a command consists of plain words and runs no other command."""
    simple = _ONE_READING.fullmatch(command)
    return simple is not None and simple[1] not in RUNNERS and simple[1] not in KEYWORDS


def _index_of_find_command(words: Sequence[str]) -> int:
    """The position of the first command that `find` runs."""
    return next((at + 1 for at, word in enumerate(words) if word in _FIND_OPTIONS), len(words))


def _precedes_command(word: str) -> bool:
    return word in KEYWORDS or ASSIGNMENT.match(word) is not None


def _may_run_following_words(word: str, name: str, defined: Collection[str]) -> bool:
    return name in RUNNERS or word in defined or word[0] in "-$" or "$" in word


def _names_in(text: str) -> list[str]:
    """Everything in a text that could be the name of a program."""
    return [*_NAME.findall(text), *_PART_OF_NAME.findall(text)]


def _join_texts(texts: Iterable[str]) -> str:
    """The texts between NULs, and also in their composed form if that differs."""
    joined = "\0" + "\0".join(dict.fromkeys(text.replace("\0", " ") for text in texts if text)) + "\0"
    if joined.isascii() or unicodedata.is_normalized("NFC", joined):
        return joined
    return joined + unicodedata.normalize("NFC", joined)
