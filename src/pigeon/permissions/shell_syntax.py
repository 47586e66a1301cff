"""A shell command read as bash reads it: its simple commands, their words, their redirections and here-documents.

One pass from left to right, in linear time and with limits; nothing is run and no file is opened. The grammar is read
flat: keywords, brackets and separators end a simple command and begin another one. Only constructs that hide text are
parsed exactly: quotes, substitutions, here-documents, comments, patterns of `case`. Allowing rules need to know exactly
what would run, so everything that is not parsed exactly sets `doubt`; denying rules use whatever was found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pigeon.permissions.shell_programs import DECLARING
from pigeon.permissions.shell_words import (
    ARITHMETIC,
    ASSIGNMENT,
    DEEPEST,
    Redirection,
    ShellScript,
    ShellWord,
    WordReader,
)

# Words after which another command begins.
KEYWORDS = frozenset(
    {"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "esac", "time"}
)
_NOT_FOLLOWED = frozenset({"case", "[[", "function", "coproc", "select"})
# Words that begin a compound command, such as the body of a function.
_COMPOUND = frozenset({"{", "if", "for", "while", "until", "case", "select", "[["})
_OPTION_OF_TIME = re.compile(r"(?:[ \t]+-p(?=\s))?(?:[ \t]+--(?=\s))?")
_ESAC = re.compile(r"esac\b")
_REDIRECTION = re.compile(r"(?:\d++|(\{\w+\}))?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())")
_ENDS_WORD = re.compile(r"[\s|&;()<>]|$")
_DESCRIPTOR = re.compile(r"\d*-?")
_QUOTES = str.maketrans("", "", "'\"\\")
# A line continued within an operator of two characters, such as `$` and `(`.
_CUT_SIGN = re.compile(r"[^\w\s./:,@%=\\-]\\\n")


def read_script(text: str, variables: Mapping[str, str]) -> ShellScript:
    """Read a shell text, given variables with known values; never fails."""
    script = ShellScript(text, variables)
    if "\0" in text or _CUT_SIGN.search(text):
        script.mark_doubt()
        text = text.replace("\0", "").replace("\\\n", "")
    ScriptReader(text, script, 0).read_commands("")
    return script


class ScriptReader(WordReader):
    """Reads commands and everything between them."""

    def __init__(self, text: str, script: ShellScript, depth: int) -> None:
        super().__init__(text, script, depth)
        self._waiting_documents: list[tuple[ShellWord, bool]] = []  # their texts begin after the next line end
        self._words: list[ShellWord] = []
        self._is_redirected = False
        self._open: list[str] = []  # brackets and `case`s

    def read_commands(self, closing: str) -> None:
        outer = (self._words, self._is_redirected, self._open)
        self._words, self._is_redirected, self._open = [], False, []
        while True:
            self.skip_blanks()
            sign = self._text[self._at : self._at + 1]
            if not sign or self._script.overflow:
                self._script.mark_unterminated(closing or self._open)
                break
            if sign == ")" and closing and not self._open:
                self._at += 1
                self._script.mark_doubt(self._waiting_documents)
                break
            self._read_token(sign)
        self._end_command()
        self._words, self._is_redirected, self._open = outer

    def _read_token(self, sign: str) -> None:
        redirection = _REDIRECTION.match(self._text, self._at)
        if redirection is not None:
            self._read_redirection(redirection)
        elif sign == "\n":
            self._end_command()
            self._at += 1
            self._read_here_documents()
        elif sign in ";&|":
            self._end_command()
            self._at += 1
            if sign == ";" and self._open[-1:] == ["case"] and self._text[self._at : self._at + 1] in (";", "&"):
                self._at += 2 if self._text.startswith(";&", self._at) else 1
                self._skip_case_pattern()
        elif sign == "(":
            self._open_bracket()
        elif sign == ")":
            self._end_command()
            self._at += 1
            if self._open[-1:] == ["("]:
                self._open.pop()
            else:
                self._script.mark_doubt()
        else:
            self._add_word(self.read_word())

    def _add_word(self, word: ShellWord) -> None:
        """Adds a word to the command, unless it is a keyword."""
        if self._words and self._words[0].raw in ("function", "coproc") and word.raw in _COMPOUND:
            self._end_command()
        if not self._words and not self._is_redirected and not word.quoted:
            if word.raw in KEYWORDS:
                if word.raw == "esac" and self._open[-1:] == ["case"]:
                    self._open.pop()
                elif word.raw == "time":
                    option = _OPTION_OF_TIME.match(self._text, self._at)
                    self._at = option.end() if option else self._at
                return
            self._script.mark_doubt(word.raw in _NOT_FOLLOWED)
            if word.raw == "case":
                self._skip_case_head()
                return
            if word.raw == "[[" and self._try_skip_test():
                return
        if word.raw == "do" and len(self._words) == 2 and self._words[0].raw in ("for", "select"):
            self._end_command()
            return
        self._words.append(word)

    def _end_command(self) -> None:
        words = self._words
        if words:
            self._script.commands.append(words)
            self._note_variables(words)
            if words[0].raw == "function" and len(words) > 1:
                self._script.functions.add(words[1].value)
            self._words = []
        self._is_redirected = False

    def _note_variables(self, words: list[ShellWord]) -> None:
        if len(words) > 3 and words[0].raw in ("for", "select"):
            self._script.set_variable(words[1].value, words[3].value)
        declares = False
        for word in words:
            assigned = ASSIGNMENT.match(word.value)
            if assigned is not None:
                before = self._script.variables.get(assigned[1], "") if assigned[0].endswith("+=") else ""
                self._script.set_variable(assigned[1], before + word.value[assigned.end() :])
            elif word.value in DECLARING:
                declares = True
            elif not declares and word.value not in ("builtin", "command"):
                return

    def _open_bracket(self) -> None:
        self._script.count_word()
        arithmetic = ARITHMETIC.match(self._text, self._at)
        if not self._words and arithmetic is not None:
            self._script.mark_doubt()
            self._at = arithmetic.end()
            return
        self._at += 1
        if self._words or self._is_redirected:
            self._script.mark_doubt()  # the definition of a function, a pattern, or nothing that the shell accepts
            self.skip_blanks()
            if self._words and self._text.startswith(")", self._at):
                self._at += 1
                self._script.functions.add(self._words[-1].value)
                if len(self._words) == 1:
                    self._words = []
                self._end_command()
                return
            self._end_command()
        self._script.mark_doubt(self._text.startswith("(", self._at))
        self._open.append("(")

    def _skip_case_head(self) -> None:
        for _ in range(2):
            self.skip_blanks(over_lines=True)
            if self._text[self._at : self._at + 1] not in (*"|&;()<>", ""):
                self.read_word()
        self._open.append("case")
        self._skip_case_pattern()

    def _skip_case_pattern(self) -> None:
        """Moves past the patterns of the next branch, or up to `esac`."""
        self.skip_blanks(over_lines=True)
        if _ESAC.match(self._text, self._at):
            return
        has_bracket = self._text.startswith("(", self._at)
        self._at += has_bracket
        for word in self.read_words_until(")"):
            if word.raw == "esac" and not has_bracket:
                self._at -= len("esac")
                return

    def _try_skip_test(self) -> bool:
        """Moves past `]]`; without one, which a plain `sh` does not need, returns False and stays."""
        begin = self._at
        if any(word.raw == "]]" for word in self.read_words_until("")):
            return True
        self._at = begin
        return False

    # --- redirections --------------------------------------------------------------------------------------------

    def _read_redirection(self, found: re.Match[str]) -> None:
        operator = found[2]
        self._at = found.end()
        self._is_redirected = True
        self._script.mark_doubt(found[1] is not None)
        self.skip_blanks()
        if operator in ("<&", ">&") and self._text.startswith("-", self._at):
            # Closes a descriptor; the text after `-` is the next word, which other shells read differently.
            self._at += 1
            self._script.mark_doubt(not _ENDS_WORD.match(self._text, self._at))
            return
        if self._text[self._at : self._at + 1] in ("", "\n", "|", "&", ";", "(", ")"):
            self._script.mark_doubt()
            return
        target = self.read_word()
        if operator in ("<<", "<<-"):
            self._waiting_documents.append((target, operator == "<<-"))
            self._script.mark_doubt(target.expands or self._depth > 0 or "\n" in target.raw)
        elif operator == "<<<":
            self._script.documents.append(target.value)
        elif not (operator in ("<&", ">&") and target.is_exact and _DESCRIPTOR.fullmatch(target.value)):
            self._script.redirections.append(Redirection(operator, target))
        if operator.startswith("&"):
            # In a plain `sh` this ends the command, and the text after the target is another one.
            self.skip_blanks()
            self._script.mark_doubt(self._text[self._at : self._at + 1] not in ("", "\n", "|", "&", ";", ")"))

    def _read_here_documents(self) -> None:
        text = self._text
        for delimiter, strips_tabs in self._waiting_documents:
            lines: list[str] = []
            # Nothing is expanded in a delimiter.
            ending = delimiter.raw.translate(_QUOTES) if delimiter.expands else delimiter.value
            while self._at < len(text):
                end = text.find("\n", self._at)
                end = len(text) if end < 0 else end
                line = text[self._at : end]
                self._at = end + 1
                if (line.lstrip("\t") if strips_tabs else line) == ending:
                    break
                lines.append(line)
            self._at = min(self._at, len(text))
            document = "\n".join(lines)
            self._script.documents.append(document)
            if not delimiter.quoted:
                # The shell joins continued lines before it looks for the delimiter.
                self._script.mark_doubt("\\\n" in document)
                self._script.mark_overflow(self._depth >= DEEPEST)
                if self._depth < DEEPEST:
                    ScriptReader(document, self._script, self._depth + 1).read_double_quotes("")
        self._waiting_documents = []
