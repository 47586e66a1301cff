"""A shell command taken apart as bash reads it: its simple commands, their words and their redirections.

One pass from left to right over the text, in linear time and with limits; nothing is run and no file is looked at.
`guard/shell_commands` builds on it what permission rules are matched with. Rules that allow need to know exactly what
would run, so everything that is not followed exactly sets `doubt`. Rules that deny use whatever was found.

The grammar is read flat: keywords, brackets and separators end a simple command and begin another one. Only what hides
text from that is followed for what it is: quotes, substitutions, here-documents, comments, patterns of `case`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

DEEPEST = 40
MOST_WORDS = 20_000
LONGEST_VARIABLE = 4096
MOST_FILLED_IN = 64 * 1024
# Words after which the next word is a command again.
KEYWORDS = frozenset(
    {"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "esac", "time"}
)
_NOT_FOLLOWED = frozenset({"case", "[[", "function", "coproc", "select"})
_ASSIGNING = frozenset({"export", "declare", "typeset", "local", "readonly"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")
_BLANK = re.compile(r"(?:[ \t]+|\\\n)+")
_TIME_OPTION = re.compile(r"(?:[ \t]+-p(?=\s))?(?:[ \t]+--(?=\s))?")
_ESAC = re.compile(r"esac\b")
_PLAIN = re.compile(r"[^ \t\n|&;()<>'\"\\$`]+")
_IN_DOUBLE = re.compile(r"[^\"\\$`]+")
_IN_HERE = re.compile(r"[^\\$`]+")
_REDIRECTION = re.compile(r"(?:\d++|(\{\w+\}))?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())")
_SINGLE = re.compile(r"'([^']*)'")
_ANSI = re.compile(r"\$'((?>(?:[^'\\]++|\\.)*))'", re.DOTALL)
_BACKTICKS = re.compile(r"`((?>(?:[^`\\]++|\\.)*))`", re.DOTALL)
_ARITHMETIC = re.compile(r"\$?\(\(([^()'\"\\`;#{}\[\]$]*)\)\)")
# Arithmetic with a name in it: it may set a variable, or run what the value of one says (`a[$(x)]`).
_NAMES = re.compile(r"[A-Za-z_]")
_PARAMETER = re.compile(
    r"\$(?:([A-Za-z_]\w*)|[0-9@*#?$!-]"
    r"|\{(#?(?:[A-Za-z_]\w*|\d+|[@*#?$!-]))((?::?[-+?]|##?|%%?|//?|:)[\w./,%^:*? -]*)?\})"
)
_OFFSET = re.compile(r":(?![-+?=]).*[A-Za-z_]")  # where a part of a value begins is arithmetic, too
_BRACED = re.compile(r"\$\{[#!]?([A-Za-z_]\w*)?(:?[-=+])?")
_DESCRIPTOR = re.compile(r"\d*-?")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ESCAPED = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# A line that is continued within a sign of two characters, such as `$` and `(`.
_CUT_SIGN = re.compile(r"[^\w\s./:,@%=\\-]\\\n")


class ShellWord(Struct, frozen=True):
    """One word: as it is written, and what it means as far as that is known.

    In `value` quotes are removed, variables that the same command sets are filled in, and other expansions are empty.
    """

    raw: str
    value: str
    quoted: bool = False
    expands: bool = False
    globs: bool = False

    @property
    def exact(self) -> bool:
        """True if the shell makes exactly `value` of it."""
        return not (self.expands or self.globs)


class Redirection(Struct, frozen=True):
    """One redirection to or from a file."""

    operator: str
    target: ShellWord


class ShellSyntax:
    """What one text of the shell consists of."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.commands: list[list[ShellWord]] = []
        self.redirections: list[Redirection] = []
        self.documents: list[str] = []  # what here-documents and here-strings say
        self.doubt = False  # something in it is not followed exactly
        self.overflow = False  # it is too large or too deep to be followed
        self.variables = {"IFS": " ", **variables}
        self.words = 0  # with brackets and substitutions
        self._filled_in = 0

    def note_doubt(self, there_is: object = True) -> None:
        """Something is not followed exactly."""
        self.doubt = self.doubt or bool(there_is)

    def note_overflow(self, there_is: bool = True) -> None:
        """It is too large or too deep; what comes behind is not read."""
        self.overflow = self.overflow or there_is
        self.doubt = self.doubt or self.overflow

    def count(self) -> None:
        """One more word, bracket or substitution."""
        self.words += 1
        self.note_overflow(self.words > MOST_WORDS)

    def fill_in(self, size: int) -> None:
        """A variable with a value of so many characters."""
        self._filled_in += size
        self.note_overflow(self._filled_in > MOST_FILLED_IN)


def shell_syntax(text: str, variables: Mapping[str, str]) -> ShellSyntax:
    """The text taken apart, with variables whose values are known; never fails."""
    found = ShellSyntax(variables)
    if "\0" in text or _CUT_SIGN.search(text):
        found.note_doubt()
        text = text.replace("\0", "").replace("\\\n", "")
    _Reader(text, found, 0).commands("")
    return found


class _Reader:
    def __init__(self, text: str, found: ShellSyntax, depth: int) -> None:
        self._text = text
        self._at = 0
        self._found = found
        self._depth = depth
        self._here: list[tuple[ShellWord, bool]] = []  # documents whose bodies begin behind the next line end
        self._words: list[ShellWord] = []
        self._redirected = False
        self._open: list[str] = []  # brackets and `case`s

    def commands(self, closing: str) -> None:
        """Read to the closing bracket of a substitution, or to the end."""
        text = self._text
        outer = (self._words, self._redirected, self._open)
        self._words, self._redirected, self._open = [], False, []
        while True:
            self._skip_blanks()
            sign = text[self._at : self._at + 1]
            if not sign or self._found.overflow:
                self._found.note_doubt(closing or self._open)
                break
            if sign == ")" and closing and not self._open:
                self._at += 1
                self._found.note_doubt(self._here)
                break
            self._token(sign)
        self._end_command()
        self._words, self._redirected, self._open = outer

    def _token(self, sign: str) -> None:
        redirection = _REDIRECTION.match(self._text, self._at)
        if redirection is not None:
            self._redirect(redirection)
        elif sign == "\n":
            self._end_command()
            self._at += 1
            self._read_here_documents()
        elif sign in ";&|":
            self._end_command()
            self._at += 1
            if sign == ";" and self._open[-1:] == ["case"] and self._text[self._at : self._at + 1] in (";", "&"):
                self._at += 2 if self._text.startswith(";&", self._at) else 1
                self._case_pattern()
        elif sign == "(":
            self._open_bracket()
        elif sign == ")":
            self._end_command()
            self._at += 1
            if self._open[-1:] == ["("]:
                self._open.pop()
            else:
                self._found.note_doubt()
        else:
            self._take(self._word())

    def _take(self, word: ShellWord) -> None:
        """A word of a command, or a keyword before one."""
        if not self._words and not self._redirected and not word.quoted:
            if word.raw in KEYWORDS:
                if word.raw == "esac" and self._open[-1:] == ["case"]:
                    self._open.pop()
                elif word.raw == "time":
                    self._at = _TIME_OPTION.match(self._text, self._at).end()  # type: ignore[union-attr]
                return
            if word.raw in _NOT_FOLLOWED:
                self._found.note_doubt()
                if word.raw in ("case", "[["):
                    self._case_head() if word.raw == "case" else self._test()
                    return
        if word.raw == "do" and len(self._words) == 2 and self._words[0].raw in ("for", "select"):
            self._end_command()
            return
        self._words.append(word)

    def _end_command(self) -> None:
        if self._words:
            self._found.commands.append(self._words)
            self._note_variables()
            self._words = []
        self._redirected = False

    def _note_variables(self) -> None:
        if len(self._words) > 3 and self._words[0].raw in ("for", "select"):
            self._found.variables[self._words[1].value] = self._words[3].value[:LONGEST_VARIABLE]
        setting = self._words[0].value in _ASSIGNING
        for word in self._words:
            assigned = _ASSIGNMENT.match(word.value)
            if assigned is not None:
                before = self._found.variables.get(assigned[1], "") if assigned[0].endswith("+=") else ""
                value = before + word.value[assigned.end() :]
                self._found.variables[assigned[1]] = value[:LONGEST_VARIABLE]
            elif not setting:
                return

    def _open_bracket(self) -> None:
        self._found.count()
        arithmetic = _ARITHMETIC.match(self._text, self._at)
        if not self._words and arithmetic is not None:
            self._found.note_doubt()
            self._at = arithmetic.end()
            return
        self._at += 1
        if self._words or self._redirected:
            self._found.note_doubt()  # the definition of a function, a pattern, or nothing that the shell accepts
            self._skip_blanks()
            if len(self._words) == 1 and self._text.startswith(")", self._at):
                self._at += 1
                self._words = []
                return
            self._end_command()
        self._found.note_doubt(self._text.startswith("(", self._at))
        self._open.append("(")

    # --- blanks, case, [[ ----------------------------------------------------------------------------------------

    def _skip_blanks(self, lines: bool = False) -> None:
        """Past blanks, continued lines and comments; with `lines` also past line ends."""
        text = self._text
        while True:
            blank = _BLANK.match(text, self._at)
            if blank is not None:
                self._at = blank.end()
            if text.startswith("#", self._at):
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            if not (lines and text.startswith("\n", self._at)):
                return
            self._at += 1

    def _case_head(self) -> None:
        for _ in range(2):
            self._skip_blanks(lines=True)
            if self._text[self._at : self._at + 1] not in (*"|&;()<>", ""):
                self._word()
        self._open.append("case")
        self._case_pattern()

    def _case_pattern(self) -> None:
        """Past the patterns of the next branch, or past `esac`."""
        self._skip_blanks(lines=True)
        if _ESAC.match(self._text, self._at):
            return
        if self._text.startswith("(", self._at):
            self._at += 1
        for word in self._words_until(")"):
            if word.raw == "esac":
                self._at -= len("esac")
                return

    def _words_until(self, closing: str) -> Iterator[ShellWord]:
        """The words up to a sign, which is passed; other signs between them have no meaning there."""
        while True:
            self._skip_blanks(lines=True)
            sign = self._text[self._at : self._at + 1]
            if not sign or self._found.overflow:
                return
            if sign == closing:
                self._at += 1
                return
            if sign in "|&;()" or (sign in "<>" and not self._text.startswith("(", self._at + 1)):
                self._at += 1
            else:
                yield self._word()

    def _test(self) -> None:
        for word in self._words_until(""):
            if word.raw == "]]":
                return

    # --- words ---------------------------------------------------------------------------------------------------

    def _word(self) -> ShellWord:
        text, begin = self._text, self._at
        values: list[str] = []
        quoted = expands = globs = False
        self._found.count()
        while self._at < len(text) and not self._found.overflow:
            sign = text[self._at]
            if sign in " \t\n|&;)":
                break
            if sign == "(":
                if not _ASSIGNMENT.fullmatch(text, begin, self._at):
                    break
                self._at += 1
                values.append(self._array())
            elif sign in "<>":
                if not text.startswith("(", self._at + 1):
                    break
                expands = True
                self._substitution()
            elif sign == "$":
                value, known = self._dollar(False)
                quoted, expands = quoted or known, expands or not known
                values.append(value)
            elif sign == "`":
                expands = True
                values.append(self._backticks(False))
            elif sign in "'\"\\":
                quoted = True
                value, known = self._quoted(sign)
                expands = expands or not known
                values.append(value)
            else:
                plain = _PLAIN.match(text, self._at)
                assert plain is not None
                values.append(plain[0])
                globs = globs or not _NO_GLOB.fullmatch(plain[0])
                self._at = plain.end()
        return ShellWord(text[begin : self._at], "".join(values), quoted, expands, globs)

    def _array(self) -> str:
        self._found.note_doubt()
        if self._depth >= DEEPEST:
            self._found.note_overflow()
            return ""
        self._depth += 1
        value = " ".join(word.value for word in self._words_until(")"))
        self._depth -= 1
        return value

    def _quoted(self, sign: str) -> tuple[str, bool]:
        """The text in quotes or behind a backslash, and whether it is exactly that."""
        if sign == "\\":
            self._at += 2
            escaped = self._text[self._at - 1 : self._at]
            self._found.note_doubt(not escaped)
            return ("" if escaped == "\n" else escaped), True
        if sign == '"':
            self._at += 1
            return self._double('"')
        single = _SINGLE.match(self._text, self._at)
        if single is None:
            self._found.note_doubt()
            rest = self._text[self._at + 1 :]
            self._at = len(self._text)
            return rest, True
        self._at = single.end()
        return single[1], True

    def _double(self, closing: str) -> tuple[str, bool]:
        """To the closing quote, or to the end of a here-document."""
        text, plain = self._text, _IN_DOUBLE if closing else _IN_HERE
        values: list[str] = []
        exact = True
        while self._at < len(text):
            run = plain.match(text, self._at)
            if run is not None:
                values.append(run[0])
                self._at = run.end()
                continue
            sign = text[self._at]
            if sign == "\\":
                escaped = text[self._at + 1 : self._at + 2]
                self._at += 2
                values.append({"\n": "", "$": "$", "`": "`", '"': '"', "\\": "\\"}.get(escaped, sign + escaped))
            elif sign == "$":
                value, _ = self._dollar(True)
                exact = exact and value == "$"
                values.append(value)
            elif sign == "`":
                exact = False
                values.append(self._backticks(True))
            else:
                self._at += 1
                return "".join(values), exact
        self._found.note_doubt(closing)
        return "".join(values), exact

    # --- expansions ----------------------------------------------------------------------------------------------

    def _dollar(self, in_quotes: bool) -> tuple[str, bool]:
        """What a dollar begins: its value, and whether that is a quoted text and no expansion."""
        text = self._text
        if not in_quotes and text.startswith('$"', self._at):
            self._at += 2
            return self._double('"')
        ansi = None if in_quotes else _ANSI.match(text, self._at)
        if ansi is not None:
            # Other shells end such a text at the first quote.
            self._found.note_doubt("\\'" in ansi[1])
            self._at = ansi.end()
            return _unescaped(ansi[1]), True
        simple = _PARAMETER.match(text, self._at)
        if simple is not None:
            self._at = simple.end()
            self._found.note_doubt(_OFFSET.match(simple[3] or ""))
            return self._variable(simple[1] or simple[2] or "", simple[3] or ""), False
        if text.startswith("$(", self._at):
            arithmetic = _ARITHMETIC.match(text, self._at)
            if arithmetic is not None:
                self._found.note_doubt(_NAMES.search(arithmetic[1]))
                self._at = arithmetic.end()
            else:
                self._found.note_doubt(text.startswith("((", self._at + 1))
                self._substitution()
            return "", False
        braced = _BRACED.match(text, self._at)
        if braced is not None:
            return self._braced(braced, in_quotes), False
        self._found.note_doubt(text.startswith(("$[", "$'"), self._at))
        self._at += 1
        return "$", not text.startswith("[", self._at)

    def _variable(self, name: str, operation: str) -> str:
        value = self._found.variables.get(name, "")
        if operation.startswith(("+", ":+")) or (not value and operation.startswith(("-", ":-"))):
            value = operation.lstrip(":-+")
        self._found.fill_in(len(value))
        return value

    def _substitution(self) -> None:
        """`$(`, `<(` or `>(` with the commands in it."""
        self._at += 2
        if self._depth >= DEEPEST:
            self._found.note_overflow()
            return
        self._depth += 1
        self.commands(")")
        self._depth -= 1

    def _backticks(self, in_quotes: bool) -> str:
        self._found.count()
        inner = _BACKTICKS.match(self._text, self._at)
        if inner is None or self._depth >= DEEPEST:
            self._found.note_doubt()
            self._found.note_overflow(inner is not None)
            self._at += 1
            return ""
        self._found.note_doubt("\\" in inner[1] or "<<" in inner[1])
        self._at = inner.end()
        signs = r"\\([`$\\\"])" if in_quotes else r"\\([`$\\])"
        _Reader(re.sub(signs, r"\1", inner[1]), self._found, self._depth + 1).commands("")
        return ""

    def _braced(self, begin: re.Match[str], in_quotes: bool) -> str:
        """`${…}` in a form that is not followed exactly; a default or alternative value counts as its value."""
        text = self._text
        self._found.note_doubt()
        self._at = begin.end()
        values: list[str] = []
        if self._depth >= DEEPEST:
            self._found.note_overflow()
            return ""
        self._depth += 1
        while self._at < len(text) and not self._found.overflow:
            sign = text[self._at]
            if sign == "}":
                self._at += 1
                break
            if sign == "$":
                values.append(self._dollar(in_quotes)[0])
            elif sign == "`":
                values.append(self._backticks(in_quotes))
            elif sign in '"\\' or (sign == "'" and not in_quotes):
                values.append(self._quoted(sign)[0])
            else:
                values.append(sign)
                self._at += 1
        self._depth -= 1
        name, operation, given = begin[1] or "", begin[2] or "", "".join(values)
        if operation.endswith("=") and name not in self._found.variables:
            self._found.variables[name] = given[:LONGEST_VARIABLE]
        if operation.endswith("+"):
            return given
        return self._found.variables.get(name) or (given if operation else "")

    # --- redirections --------------------------------------------------------------------------------------------

    def _redirect(self, found: re.Match[str]) -> None:
        operator = found[2]
        self._at = found.end()
        self._redirected = True
        self._found.note_doubt(found[1] is not None)
        self._skip_blanks()
        if self._text[self._at : self._at + 1] in ("", "\n", "|", "&", ";", "(", ")"):
            self._found.note_doubt()
            return
        target = self._word()
        if operator in ("<<", "<<-"):
            self._here.append((target, operator == "<<-"))
            self._found.note_doubt(target.expands or self._depth > 0 or "\n" in target.raw)
        elif operator == "<<<":
            self._found.documents.append(target.value)
        else:
            copies = operator in ("<&", ">&") and target.exact and _DESCRIPTOR.fullmatch(target.value)
            if not copies:
                self._found.redirections.append(Redirection(operator, target))

    def _read_here_documents(self) -> None:
        text = self._text
        for delimiter, tabs in self._here:
            body: list[str] = []
            while self._at < len(text):
                end = text.find("\n", self._at)
                end = len(text) if end < 0 else end
                line = text[self._at : end]
                self._at = end + 1
                if (line.lstrip("\t") if tabs else line) == delimiter.value:
                    break
                body.append(line)
            self._at = min(self._at, len(text))
            document = "\n".join(body)
            self._found.documents.append(document)
            if not delimiter.quoted:
                # The shell joins such lines before it looks for the delimiter.
                self._found.note_doubt("\\\n" in document)
                if self._depth < DEEPEST:
                    _Reader(document, self._found, self._depth + 1)._double("")
        self._here = []


_NO_GLOB = re.compile(r"[^*?\[\]{}~]*")


def _unescaped(text: str) -> str:
    """The text of `$'…'`."""

    def one(found: re.Match[str]) -> str:
        number = found[1] or found[2] or found[3]
        if number:
            return chr(min(int(number, 16), 0x10FFFF))
        if found[4]:
            return chr(int(found[4], 8) & 0xFF)
        if found[5]:
            return chr(ord(found[5]) & 0x1F)
        return _ESCAPED.get(found[6], found[6] if found[6] in "\\'\"?" else found[0])

    return _ESCAPE.sub(one, text).partition("\0")[0] if "\\" in text else text
