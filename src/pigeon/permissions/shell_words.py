"""One word of a shell command, read as bash reads it: quotes, escapes, variables and substitutions.

`WordReader` moves over the text from left to right, in linear time. Anything that it does not parse exactly sets
`doubt` of its script, and texts that are too large or too deep set `overflow`. The commands in substitutions are read
by its subclass, `shell_syntax.ScriptReader`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

DEEPEST = 40
MOST_WORDS = 20_000
LONGEST_VARIABLE = 4096
MOST_FILLED_IN = 64 * 1024
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")
_BLANK = re.compile(r"(?:[ \t]+|\\\n)+")
_PLAIN = re.compile(r"[^ \t\n|&;()<>'\"\\$`]+")
_NO_GLOB = re.compile(r"[^*?\[\]{}~]*")
_IN_DOUBLE_QUOTES = re.compile(r"[^\"\\$`]+")
_IN_HERE_DOCUMENT = re.compile(r"[^\\$`]+")
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_ANSI_QUOTED = re.compile(r"\$'((?>(?:[^'\\]++|\\.)*))'", re.DOTALL)
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_BACKTICKS = re.compile(r"`((?>(?:[^`\\]++|\\.)*))`", re.DOTALL)
ARITHMETIC = re.compile(r"\$?\(\(([^()'\"\\`;#{}\[\]$]*)\)\)")
# Arithmetic with a name in it may set a variable, or run a command in the value of one (`a[$(x)]`).
_HAS_NAME = re.compile(r"[A-Za-z_]")
_SIMPLE_PARAMETER = re.compile(
    r"\$(?:([A-Za-z_]\w*)|[0-9@*#?$!-]"
    r"|\{(#?(?:[A-Za-z_]\w*|\d+|[@*#?$!-]))((?::?[-+?]|##?|%%?|//?|:)[\w./,%^:*? -]*)?\})"
)
_OFFSET_WITH_NAME = re.compile(r":(?![-+?=]).*[A-Za-z_]")  # `${x:a}`: an offset is arithmetic
_BRACED_PARAMETER = re.compile(r"\$\{[#!]?([A-Za-z_]\w*)?(:?[-=+])?")


class ShellWord(Struct, frozen=True):
    """One word: as written, and its meaning as far as known.

    In `value` quotes are removed, variables that the same command sets are filled in, and other expansions are empty.
    `shape` is the same with `*` for each expansion.
    """

    raw: str
    value: str
    shape: str
    quoted: bool = False
    expands: bool = False
    globs: bool = False

    @property
    def is_exact(self) -> bool:
        """True if the shell expands it to exactly `value`."""
        return not (self.expands or self.globs)


class Redirection(Struct, frozen=True):
    """One redirection to or from a file."""

    operator: str
    target: ShellWord


class ShellScript:
    """The contents of one shell text."""

    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        self.text = text
        self.commands: list[list[ShellWord]] = []
        self.redirections: list[Redirection] = []
        self.documents: list[str] = []  # the texts of here-documents and here-strings
        self.functions: set[str] = set()
        self.quoted_substitutions: list[str] = []  # arithmetic, for one, evaluates texts such as `'a[$(x)]'`
        self.doubt = False  # something in it is not parsed exactly
        self.unterminated = False  # a quote or bracket in it is not closed, or seems not to be
        self.overflow = False  # it is too large or too deep
        self.variables = {"IFS": " ", **variables}
        self.word_count = 0  # includes brackets and substitutions
        self._filled_in = 0

    def mark_doubt(self, condition: object = True) -> None:
        self.doubt = self.doubt or bool(condition)

    def mark_unterminated(self, condition: object = True) -> None:
        self.unterminated = self.unterminated or bool(condition)
        self.doubt = self.doubt or self.unterminated

    def mark_overflow(self, condition: bool = True) -> None:
        self.overflow = self.overflow or condition
        self.doubt = self.doubt or self.overflow

    def count_word(self) -> None:
        self.word_count += 1
        self.mark_overflow(self.word_count > MOST_WORDS)

    def count_expanded_characters(self, size: int) -> None:
        self._filled_in += size
        self.mark_overflow(self._filled_in > MOST_FILLED_IN)

    def set_variable(self, name: str, value: str) -> None:
        self.variables[name] = value[:LONGEST_VARIABLE]


class _WordPart(Struct, frozen=True):
    """A part of a word: its value, its shape, and whether the shell expands it to exactly that."""

    value: str
    shape: str
    is_exact: bool


def _make_literal_part(text: str) -> _WordPart:
    return _WordPart(text, text, True)


def _make_expanded_part(value: str = "") -> _WordPart:
    return _WordPart(value, "*", False)


def _join_parts(parts: Sequence[_WordPart]) -> _WordPart:
    return _WordPart(
        "".join(part.value for part in parts),
        "".join(part.shape for part in parts),
        all(part.is_exact for part in parts),
    )


class WordReader:
    """Reads words at a position in a text; a subclass reads the commands in substitutions."""

    def __init__(self, text: str, script: ShellScript, depth: int) -> None:
        self._text = text
        self._at = 0
        self._script = script
        self._depth = depth

    def read_commands(self, closing: str) -> None:
        """Reads commands up to the closing bracket of a substitution, or to the end."""
        raise NotImplementedError

    def read_word(self) -> ShellWord:
        """Reads the word that begins here, up to a blank or an operator."""
        text, begin = self._text, self._at
        parts: list[_WordPart] = []
        quoted = expands = globs = False
        self._script.count_word()
        while self._at < len(text) and not self._script.overflow:
            sign = text[self._at]
            if sign in " \t\n|&;)":
                break
            if sign == "(":
                if not ASSIGNMENT.fullmatch(text, begin, self._at):
                    break
                parts.append(self._read_array())
                continue
            if sign in "<>" and not text.startswith("(", self._at + 1):
                break
            part = self._read_part(sign)
            parts.append(part)
            quoted = quoted or sign in "'\"\\" or (sign == "$" and part.is_exact)
            expands = expands or not part.is_exact
            globs = globs or (sign not in "'\"\\$`<>" and not _NO_GLOB.fullmatch(part.value))
        word = _join_parts(parts)
        if "$(" in word.value or "`" in word.value:
            self._script.quoted_substitutions.append(word.value)
        return ShellWord(text[begin : self._at], word.value, word.shape, quoted, expands, globs)

    def skip_blanks(self, over_lines: bool = False) -> None:
        """Moves past blanks, continued lines and comments; with `over_lines` past line ends, too."""
        text = self._text
        while True:
            blank = _BLANK.match(text, self._at)
            if blank is not None:
                self._at = blank.end()
            if text.startswith("#", self._at):
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            if not (over_lines and text.startswith("\n", self._at)):
                return
            self._at += 1

    def read_words_until(self, closing: str) -> Iterator[ShellWord]:
        """The words up to a character, which is consumed; other special characters between them have no meaning
        there."""
        while True:
            self.skip_blanks(over_lines=True)
            sign = self._text[self._at : self._at + 1]
            if not sign or self._script.overflow:
                return
            if sign == closing:
                self._at += 1
                return
            if sign in "|&;()" or (sign in "<>" and not self._text.startswith("(", self._at + 1)):
                self._at += 1
            else:
                yield self.read_word()

    # --- parts of a word -----------------------------------------------------------------------------------------

    def _read_part(self, sign: str) -> _WordPart:
        match sign:
            case "$":
                return self._read_dollar(in_quotes=False)
            case "`":
                return self._read_backticks(in_quotes=False)
            case "'":
                return self._read_single_quotes()
            case '"':
                self._at += 1
                return self.read_double_quotes('"')
            case "\\":
                return self._read_backslash()
            case "<" | ">":
                return self._read_substitution()
        plain = _PLAIN.match(self._text, self._at)
        assert plain is not None
        self._at = plain.end()
        return _make_literal_part(plain[0])

    def _read_array(self) -> _WordPart:
        self._script.mark_doubt()
        self._at += 1
        if not self._try_enter_level():
            return _make_literal_part("")
        value = " ".join(word.value for word in self.read_words_until(")"))
        self._depth -= 1
        return _make_literal_part(value)

    def _read_backslash(self) -> _WordPart:
        self._at += 2
        escaped = self._text[self._at - 1 : self._at]
        self._script.mark_doubt(not escaped)
        return _make_literal_part("" if escaped == "\n" else escaped)

    def _read_single_quotes(self) -> _WordPart:
        quoted = _SINGLE_QUOTED.match(self._text, self._at)
        if quoted is None:
            self._script.mark_unterminated()
            rest = self._text[self._at + 1 :]
            self._at = len(self._text)
            return _make_literal_part(rest)
        self._at = quoted.end()
        return _make_literal_part(quoted[1])

    def read_double_quotes(self, closing: str) -> _WordPart:
        """Reads up to the closing quote, or a here-document to its end."""
        text, plain = self._text, _IN_DOUBLE_QUOTES if closing else _IN_HERE_DOCUMENT
        parts: list[_WordPart] = []
        while self._at < len(text):
            run = plain.match(text, self._at)
            if run is not None:
                parts.append(_make_literal_part(run[0]))
                self._at = run.end()
                continue
            sign = text[self._at]
            if sign == "\\":
                escaped = text[self._at + 1 : self._at + 2]
                self._at += 2
                parts.append(
                    _make_literal_part({"\n": ""}.get(escaped, escaped if escaped in '$`"\\' else sign + escaped))
                )
            elif sign == "$":
                part = self._read_dollar(in_quotes=True)
                parts.append(part if part.value != "$" else _make_literal_part("$"))
            elif sign == "`":
                parts.append(self._read_backticks(in_quotes=True))
            else:
                self._at += 1
                return _join_parts(parts)
        self._script.mark_unterminated(closing)
        return _join_parts(parts)

    # --- expansions ----------------------------------------------------------------------------------------------

    def _try_enter_level(self) -> bool:
        """Go one level deeper, unless that is too deep."""
        if self._depth >= DEEPEST:
            self._script.mark_overflow()
            return False
        self._depth += 1
        return True

    def _read_dollar(self, in_quotes: bool) -> _WordPart:
        text = self._text
        if not in_quotes and text.startswith('$"', self._at):
            self._at += 2
            return self.read_double_quotes('"')
        ansi = None if in_quotes else _ANSI_QUOTED.match(text, self._at)
        if ansi is not None:
            self._script.mark_doubt("\\'" in ansi[1])  # other shells end such a text at the first quote
            self._at = ansi.end()
            return _make_literal_part(unescape_ansi(ansi[1]))
        simple = _SIMPLE_PARAMETER.match(text, self._at)
        if simple is not None:
            self._at = simple.end()
            self._script.mark_doubt(_OFFSET_WITH_NAME.match(simple[3] or ""))
            return _make_expanded_part(self._expand_variable(simple[1] or simple[2] or "", simple[3] or ""))
        if text.startswith("$(", self._at):
            return self._read_arithmetic() or self._read_substitution()
        braced = _BRACED_PARAMETER.match(text, self._at)
        if braced is not None:
            return self._read_braced(braced, in_quotes)
        self._script.mark_doubt(text.startswith(("$[", "$'"), self._at))
        self._at += 1
        return _WordPart("$", "$", not text.startswith("[", self._at))

    def _read_arithmetic(self) -> _WordPart | None:
        arithmetic = ARITHMETIC.match(self._text, self._at)
        if arithmetic is None:
            self._script.mark_doubt(self._text.startswith("((", self._at + 1))
            return None
        self._script.mark_doubt(_HAS_NAME.search(arithmetic[1]))
        self._at = arithmetic.end()
        return _make_expanded_part()

    def _expand_variable(self, name: str, operation: str) -> str:
        value = self._script.variables.get(name, "")
        if operation.startswith(("+", ":+")) or (not value and operation.startswith(("-", ":-"))):
            value = operation.lstrip(":-+")
        self._script.count_expanded_characters(len(value))
        return value

    def _read_substitution(self) -> _WordPart:
        """Reads `$(`, `<(` or `>(` with the commands in it."""
        self._at += 2
        if self._try_enter_level():
            self.read_commands(")")
            self._depth -= 1
        return _make_expanded_part()

    def _read_backticks(self, in_quotes: bool) -> _WordPart:
        self._script.count_word()
        inner = _BACKTICKS.match(self._text, self._at)
        if inner is None or self._depth >= DEEPEST:
            self._script.mark_unterminated()
            self._script.mark_overflow(inner is not None)
            self._at += 1
            return _make_expanded_part()
        self._script.mark_doubt("\\" in inner[1] or "<<" in inner[1])
        self._at = inner.end()
        escapes = r"\\([`$\\\"])" if in_quotes else r"\\([`$\\])"
        text = re.sub(escapes, r"\1", inner[1])
        type(self)(text, self._script, self._depth + 1).read_commands("")
        return _make_expanded_part()

    def _read_braced(self, begin: re.Match[str], in_quotes: bool) -> _WordPart:
        """Read `${…}` in a form that is not parsed exactly; a default or alternative value counts as its value."""
        text = self._text
        self._script.mark_doubt()
        self._at = begin.end()
        parts: list[_WordPart] = []
        if not self._try_enter_level():
            return _make_expanded_part()
        while not self._script.overflow:
            sign = text[self._at : self._at + 1]
            if sign in ("}", ""):
                self._at += 1
                self._script.mark_unterminated(not sign)
                break
            if sign == "$":
                parts.append(self._read_dollar(in_quotes))
            elif sign == "`":
                parts.append(self._read_backticks(in_quotes))
            elif sign in '"\\' or (sign == "'" and not in_quotes):
                parts.append(self._read_part(sign))
            else:
                parts.append(_make_literal_part(sign))
                self._at += 1
        self._depth -= 1
        name, operation, given = begin[1] or "", begin[2] or "", _join_parts(parts).value
        if operation.endswith("=") and name not in self._script.variables:
            self._script.set_variable(name, given)
        if operation.endswith("+"):
            return _make_expanded_part(given)
        return _make_expanded_part(self._script.variables.get(name) or (given if operation else ""))


def unescape_ansi(text: str) -> str:
    """The text of `$'…'`; `printf` and `echo -e` expand a text nearly the same way."""

    def unescape(found: re.Match[str]) -> str:
        number = found[1] or found[2] or found[3]
        if number:
            return chr(min(int(number, 16), 0x10FFFF))
        if found[4]:
            return chr(int(found[4], 8) & 0xFF)
        if found[5]:
            return chr(ord(found[5]) & 0x1F)
        return _ANSI_LETTERS.get(found[6], found[6] if found[6] in "\\'\"?" else found[0])

    return _ANSI_ESCAPE.sub(unescape, text).partition("\0")[0] if "\\" in text else text
