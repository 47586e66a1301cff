"""What permission rules are matched with when a call is about a shell command.

A rule that denies or asks is looked for in every reading of the command: as it is written, cut at every sign that can
separate commands, and taken apart by `guard/shell_syntax` with quotes removed, also behind assignments, keywords and
programs that run other programs. A rule that allows is asked about the pieces that `guard/shell_syntax` followed
exactly. `guard/rules` decides; this module knows the shell and the programs that run others.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, islice, pairwise

from pigeon.permissions.shell_syntax import KEYWORDS, MOST_WORDS, ShellSyntax, ShellWord, shell_syntax
from pigeon.system.globs import Matcher, any_text_matcher, text_matcher
from pigeon.system.paths import expand_home

DEEPEST_SCRIPT = 8
MOST_GLOBBED = 100
LONGEST_GLOB = 200
MOST_PREFIXES = 8
MOST_FOLDERS = 64
MOST_FILES = 2000
MOST_ALTERNATIVES = 1000
MOST_EXPANDED = 512 * 1024
LONGEST_SEQUENCE = 64
# fmt: off
_SHELLS = frozenset({"bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "source", "."})
_JOINING = frozenset({"eval", "ssh", "watch", "parallel"})  # they make one command of all their words
# Programs that run what stands behind them, whatever their options are.
RUNNERS = _SHELLS | _JOINING | {
    "alias", "arch", "bind", "builtin", "busybox", "bwrap", "caffeinate", "catchsegv", "cgexec", "choom", "chroot",
    "chrt", "command", "compgen", "complete", "coproc", "dbus-run-session", "doas", "enable", "entr", "env", "exec",
    "fakeroot", "fd", "find", "firejail", "flock", "function", "gdb", "gtimeout", "hash", "ionice", "linux32",
    "linux64", "ltrace", "mapfile", "nice", "nohup", "nsenter", "numactl", "perf", "pkexec", "prlimit",
    "proxychains", "readarray", "rlwrap", "runuser", "script", "setarch", "setpriv", "setsid", "start-stop-daemon",
    "stdbuf", "strace", "su", "set", "sudo", "systemd-run", "taskset", "time", "timeout", "torsocks", "toybox", "trap",
    "unbuffer", "unshare", "valgrind", "xargs", "xvfb-run",
}
# fmt: on
_FINDING = ("-exec", "-execdir", "-ok", "-okdir")
_CUTS = re.compile(r"&&|\|\||[;|&\n(){}`]|\$\(|<\(|>\(")
_SPACES = re.compile(r"[^\S\0]+")
_AROUND = re.compile(" ?\0 ?")
_LEADING = re.compile(
    r"\0(?:(?:[A-Za-z_]\w*(?:\[[^\]\0]*\])?\+?=[^\s\0]*|if|then|elif|else|while|until|do|time(?: -p)?(?: --)?|!|\{)"
    r"(?: |(?=\0)))+"
)
_SIMPLE = re.compile(r"([a-z][\w-]*+)(?>(?: [\w./:@%+,-]++)*)", re.ASCII)
_FOLDER = re.compile("\0[^\0 ]*/")
_FIRST = re.compile("\0[^\0 ]+")
_RUNNING = re.compile(
    "\0((?:{})(?= )[^\0]*)".format("|".join(re.escape(name) for name in sorted(RUNNERS - {"find", "fd"})))
)
_FIND = re.compile("\0((?:find|fd)(?>[^\0]*? (?:-exec|-execdir|-ok|-okdir|-x|-X)(?= ))[^\0]*)")
_QUOTES = str.maketrans("", "", "'\"\\")
_SCRIPT = re.compile(r"[\s;|&$`(<>'\"\\{]")
_OPTION = re.compile(r"(?:-[A-Za-z]*?S|--[\w-]+=|[\w.-]+=)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=")
_OPAQUE = re.compile(r"\\.|'[^']*'|\"(?>(?:[^\"\\]++|\\.)*)\"|\$\{[^}]*\}|\$\([^)]*\)", re.DOTALL)
_BRACES = re.compile("[{},]")
_SEQUENCE = re.compile(r"\{(-?\d{1,6}|[A-Za-z])\.\.(-?\d{1,6}|[A-Za-z])(?:\.\.-?\d+)?\}")
_POSIX_CLASS = re.compile(r"\[\[:\w+:\]\]")
_PROGRAM = re.compile(r"[\w.+@%:,/-]+")
_ARGUMENT = re.compile(r"[^\s'\"\\\0]+")
# Programs that run another one just as it is, with the options that change nothing about that.
_PREFIX_OPTIONS = {
    "command": "-p ", "exec": "(?!)", "nohup": "(?!)", "setsid": "(?!)", "env": "(?!)", "nice": r"-n -?\d+ ",
    "timeout": r"\d+(?:\.\d+)?[smhd]? ", "stdbuf": r"-[ioe][L\d]\w* ",
}  # fmt: skip
# Builtins whose words are names of variables, and variables that decide which programs run.
_SETTING = frozenset(("for", "read", "unset", "getopts", "wait", "export", "declare", "typeset", "local", "readonly"))
_VARIABLE = re.compile(r"([A-Za-z_]\w*)(?:(\+?=)|$)")
_DECIDING = re.compile(r"PATH|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PS4|IFS|PROMPT_COMMAND|(?:LD|DYLD)_\w+")
_NUMBERS = ("$#", "$?", "$!", "$$")
_ONE_WORD = re.compile(r'"[^"@*]*"')
_COMPARING = ("=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef")
# A value of a variable or of a substitution that a word begins or ends with.
_FIRST_VALUE = re.compile(r"\"?(?:\$\(|`|\$(\w+|[@*])|\$\{(\w+|[@*])\})")
_LAST_VALUE = re.compile(r"(?:\)|`|\$(\w+|[@*])|\$\{(\w+|[@*])\})\"?$")
_TILDE = re.compile(r"~[\w.+-]*(?=/|$)")
_PROCESS_FOLDER = re.compile(r"/+proc/+(?:(?:self|thread-self|\d+)/+)?cwd(?=/|$)")  # `$$` counts as empty
_NO_FILES = ("/dev/null", "/dev/stdout", "/dev/stderr")
_WRITING = {">": ">", ">|": ">", "&>": ">", ">&": ">", ">>": ">>", "&>>": ">>", "<>": "<>", "<": "<"}


@lru_cache(maxsize=512)
def _plain_pattern(pattern: str) -> str:
    """The pattern of a rule for commands as it is matched: runs of blanks count as one."""
    return unicodedata.normalize("NFC", " ".join(pattern.split()))


@lru_cache(maxsize=512)
def _matchers(pattern: str) -> tuple[str, str, list[Matcher], list[Matcher]]:
    """A pattern, the name in it, what finds it among readings, and what finds it behind programs that run others."""
    plain = _plain_pattern(pattern)
    name, _, rest = plain.partition(" ")
    # Options may stand between the name of a program and what a rule says of it: `git -C x push`.
    forms = [plain, f"{name} -* {rest}"] if rest and not rest.startswith("*") else [plain]
    if rest == "*":  # without any argument it is the same program
        forms.append(name)
    inside = [any_text_matcher(f"*{sign}{form}") for form in forms for sign in " /"]
    return plain, name, [any_text_matcher(form) for form in forms], inside


class CommandReadings:
    """All readings of one command; each is made when a rule needs it."""

    def __init__(self, command: str, variables: Mapping[str, str]) -> None:
        self._command = command
        self._variables = variables

    @cached_property
    def _syntax(self) -> ShellSyntax:
        return shell_syntax(self._command, self._variables)

    @cached_property
    def _scripts(self) -> list[ShellSyntax]:
        """The command, and the texts in it that it hands to a shell, taken apart."""
        found: list[ShellSyntax] = []
        waiting = [(self._syntax, 0)]
        if (
            len(self._syntax.variables) > len(self._variables) + 1
        ):  # some may be used above the place where they are set
            waiting.append((shell_syntax(self._command, self._syntax.variables), 0))
        words = self._syntax.words
        while waiting:
            syntax, depth = waiting.pop()
            found.append(syntax)
            for text in dict.fromkeys(_scripts_in(syntax)):
                if depth == DEEPEST_SCRIPT or words > MOST_WORDS:
                    syntax.note_overflow()
                    break
                inner = shell_syntax(text, {**self._variables, **syntax.variables})
                words += inner.words
                waiting.append((inner, depth + 1))
        return found

    @property
    def overflow(self) -> bool:
        """True if the command is too large or too deep for its readings to be complete."""
        return any(syntax.overflow for syntax in self._scripts) or len(self._globbed) > MOST_GLOBBED

    # --- for rules that deny or ask ------------------------------------------------------------------------------

    @cached_property
    def _texts(self) -> tuple[str, str]:
        """All readings, and what stands behind programs that run others; each as texts between NULs."""
        command = self._command.replace("\0", " ")
        simple = _SIMPLE.fullmatch(command)
        if simple is not None and simple[1] not in RUNNERS and simple[1] not in KEYWORDS:  # there is one reading
            return f"\0{command}\0", "\0\0"
        cut = _AROUND.sub("\0", _SPACES.sub(" ", f"\0{_CUTS.sub(chr(0), command)}\0"))
        pieces = [cut, cut.translate(_QUOTES)]
        for syntax in self._scripts:
            pieces.append("\0".join(" ".join(word.value for word in _unassigned(words)) for words in syntax.commands))
            pieces.append("\0".join(" ".join(word.raw for word in words) for words in syntax.commands))
            for redirection in syntax.redirections:
                pieces.append(f"{_WRITING.get(redirection.operator, '<')} {redirection.target.value}")
        joined = _unique(_SPACES.sub(" ", "\0".join(pieces)))
        bare = _LEADING.sub("\0", joined)
        named = _FOLDER.sub("\0", bare)
        if sys.platform == "darwin":  # names of programs there have no case
            named += _FIRST.sub(lambda first: first[0].lower(), named)
        joined = _unique(f"\0{_SPACES.sub(' ', command).strip()}{joined}{bare}{named}")
        running = [*_RUNNING.findall(named), *_FIND.findall(named)]
        behind = [f" {text.partition(' ')[2]}" for text in running]
        behind += [text.replace("=", " ") for text in behind if "=" in text]  # `alias`, `env -S`
        behind += [f"{text} {{}}" for text in behind if " {}" not in text]  # words that `xargs` adds
        return _composed(joined), _composed(_unique("\0" + "\0".join(behind) + "\0"))

    @cached_property
    def _globbed(self) -> list[tuple[str, str]]:
        """Commands whose name is a pattern, with their other words."""
        found: list[tuple[str, str]] = []
        for syntax in self._scripts:
            for words in map(_unassigned, syntax.commands):
                # Behind a program that runs others, any word may be the name of one.
                count = len(words) if os.path.basename(words[0].value) in RUNNERS else 1
                for at, word in enumerate(words[:count]):
                    if word.globs and (at == 0 or "/" in word.raw) and len(found) <= MOST_GLOBBED:
                        rest = " ".join(later.value for later in words[at + 1 :])
                        glob = _POSIX_CLASS.sub("?", os.path.basename(word.value).replace("[^", "[!"))
                        found.append((glob if len(glob) <= LONGEST_GLOB else "*", rest))
        return found

    def has(self, pattern: str) -> bool:
        """Whether any reading matches a pattern of a rule that denies or asks."""
        plain, name, ahead, inside = _matchers(pattern)
        texts, behind = self._texts
        if any(matches(texts) for matches in ahead) or (len(behind) > 2 and any(matches(behind) for matches in inside)):
            return True
        return any(
            text_matcher(glob)(name) and text_matcher(plain, classes=False)(f"{name} {words}")
            for glob, words in self._globbed[:MOST_GLOBBED]
        )

    def files(self, cwd: str, home: str, access: str) -> list[str] | None:
        """The absolute paths that redirections write or read, in every folder the command may be in by then; none if
        there are too many, or a name has wildcards or braces and may be any. Where a name begins or ends with a value
        that is not known (`$1`), each word of the command may be it."""
        wanted = ("<", "<>", "<&") if access == "read" else tuple(_WRITING)[:-1]
        targets = {
            (redirection.target.raw, redirection.target.value): (redirection.target, syntax)
            for syntax in self._scripts
            for redirection in syntax.redirections
            if redirection.operator in wanted and redirection.target.value not in _NO_FILES
        }
        folders = self._folders(cwd, home) if targets else []
        if folders is None or any(_may_be_any(target) for target, _ in targets.values()):
            return None
        found: dict[str, None] = {}
        left = MOST_FILES // len(folders or (cwd,))
        for target, syntax in targets.values():
            names = list(islice(chain(_names(target, syntax, cwd, home), self._guessed(target, syntax)), left + 1))
            left -= len(names)
            if left < 0:
                return None
            found.update(dict.fromkeys(os.path.join(folder, name) for folder in folders for name in names if name))
        return list(found)

    def _guessed(self, target: ShellWord, syntax: ShellSyntax) -> Iterator[str]:
        """What a name may be that begins or ends with a value that is not known."""
        first, last = _FIRST_VALUE.match(target.raw), _LAST_VALUE.search(target.raw)
        for found, begins in ((first, True), (last, False)):
            variable = "" if found is None else found[1] or found[2] or ""
            if found is None or (variable in syntax.variables and variable not in self._varying):
                continue
            known = syntax.variables.get(variable, "")
            rest = target.value.removeprefix(known) if begins else target.value.removesuffix(known)
            yield from (word + rest if begins else rest + word for word in self._spoken)

    @cached_property
    def _varying(self) -> set[str]:
        """Variables of loops, which have several values."""
        loops = (words for syntax in self._scripts for words in syntax.commands if words[0].raw == "for")
        return {words[1].value for words in loops if len(words) > 4}

    @cached_property
    def _spoken(self) -> list[str]:
        """Every word of the command that could be a part of a path, and what stands behind `=` in one."""
        found: dict[str, None] = {}
        for syntax in self._scripts:
            texts = [word.value for words in syntax.commands for word in words]
            texts += [word for document in syntax.documents if "\n" not in document for word in document.split()]
            found.update(dict.fromkeys(text for text in texts if text[:1] not in ("", "-") and "\n" not in text))
        found.update(dict.fromkeys(text.partition("=")[2] for text in tuple(found) if "=" in text))
        return list(found)

    def _folders(self, cwd: str, home: str) -> list[str] | None:
        """Where the command may be at any time; none if those are too many. Which `cd` comes first, and which one has
        no effect behind a bracket, is not followed: each may begin where any other ended."""
        folders = {cwd: None}
        for syntax in self._scripts:
            search = [entry for entry in syntax.variables.get("CDPATH", "").split(":") if entry]
            for words in syntax.commands:
                going = next((at for at, word in enumerate(words) if word.value in ("cd", "pushd")), None)
                if going is None or (going and not _precedes_builtin(words[:going])):
                    continue
                target = words[-1]
                if _may_be_any(target):
                    return None
                names = [home, syntax.variables.get("HOME", home)]
                if target.value == "-":
                    names = [syntax.variables.get("OLDPWD", cwd)]
                elif len(words) > going + 1:
                    names = _names(target, syntax, cwd, home)
                    names += [os.path.join(entry, name) for entry in search for name in names]
                below = (os.path.join(folder, name) for folder in tuple(folders) for name in names)
                folders.update(dict.fromkeys(map(os.path.normpath, below)))
                if len(folders) > MOST_FOLDERS:
                    return None
        return list(folders)

    # --- for rules that allow ------------------------------------------------------------------------------------

    def covered(self, patterns: Sequence[str]) -> bool:
        """Whether patterns of rules that allow cover all that the command does, as far as that is certain."""
        syntax = self._syntax
        patterns = [_plain_pattern(pattern) for pattern in patterns]
        if syntax.doubt or not (syntax.commands or syntax.redirections):
            return False
        return all(_command_covered(words, patterns) for words in syntax.commands) and all(
            _file_covered(redirection.operator, redirection.target, patterns) for redirection in syntax.redirections
        )


def _unassigned(words: list[ShellWord]) -> list[ShellWord]:
    """The words behind the assignments before a command."""
    first = next((at for at, word in enumerate(words) if not _ASSIGNMENT.match(word.raw)), 0)
    return words[first:]


def _unique(joined: str) -> str:
    return "\0" + "\0".join(dict.fromkeys(text for text in joined.split("\0") if text)) + "\0"


def _composed(joined: str) -> str:
    """The texts, and in their composed form if that is another."""
    if joined.isascii() or unicodedata.is_normalized("NFC", joined):
        return joined
    return joined + unicodedata.normalize("NFC", joined)


def _precedes_builtin(words: list[ShellWord]) -> bool:
    """Whether these words before `cd` leave it what it is."""
    return all(_ASSIGNMENT.match(word.raw) or word.value in ("command", "builtin", "--", "-p") for word in words)


def _may_be_any(word: ShellWord) -> bool:
    """Whether the shell may make another name of it, by what files there are."""
    return word.globs and any(sign in word.raw for sign in "*?[{")


def _names(word: ShellWord, syntax: ShellSyntax, cwd: str, home: str) -> list[str]:
    """What a word may name as a path; relative where it depends on the folder that the command is in by then."""
    value, tilde = word.value, _TILDE.match(word.raw)
    if tilde is not None:
        rest = value[tilde.end() :]
        if tilde[0] in ("~+", "~-"):
            return [f".{rest}"]
        if tilde[0] == "~":
            return list(dict.fromkeys((home + rest, syntax.variables.get("HOME", home) + rest)))
        return [expand_home(tilde[0], home) + rest]
    names = [value]
    if "PWD" in word.raw and (value == cwd or value.startswith(f"{cwd.rstrip('/')}/")):
        names.append(f".{value[len(cwd.rstrip('/')) :]}")
    process = _PROCESS_FOLDER.match(value)
    if process is not None:
        names.append(f".{value[process.end() :]}")
    return names


# --- texts that are commands again --------------------------------------------------------------------------------


def _scripts_in(syntax: ShellSyntax) -> Iterator[str]:
    """The texts that a command hands to a shell, and its commands with braces expanded."""
    names = [{os.path.basename(word.value) for word in words} for words in syntax.commands]
    for words, named in zip(syntax.commands, names, strict=True):
        if any(word.globs and "{" in word.raw for word in words):
            written = " ".join(word.raw for word in words)
            expanded = _braces_expanded(words)
            if expanded is None:
                syntax.note_overflow()
            elif expanded != written:
                yield expanded
        if named & RUNNERS or words[0].expands:
            yield from _handed_over(words)
    if any(named & _SHELLS for named in names):
        yield from syntax.documents
        for words in syntax.commands:
            if words[0].value in ("echo", "printf"):
                yield " ".join(word.value for word in words[1:])
                yield " ".join(word.value for word in words[2:])  # behind a format or an option
                yield from (word.value for word in words[1:] if _SCRIPT.search(word.value))


def _handed_over(words: list[ShellWord]) -> Iterator[str]:
    for index, word in enumerate(words):
        if os.path.basename(word.value) in _JOINING:
            yield " ".join(later.value for later in words[index + 1 :])
            return
        option = _OPTION.match(word.value)
        if (index or word.expands) and _SCRIPT.search(word.value):
            yield word.value
        if option is not None and (_SCRIPT.search(word.value) or word.value.startswith("PROMPT_COMMAND=")):
            yield word.value[option.end() :]


def _braces_expanded(words: list[ShellWord]) -> str | None:
    """A command with its braces expanded; none if that makes too many words of it."""
    opaque: list[str] = []

    def hidden(found: re.Match[str]) -> str:
        opaque.append(found[0])  # quoted text has no braces
        return f"\0{len(opaque) - 1}\0"

    done: list[str] = []
    waiting = [_OPAQUE.sub(hidden, word.raw.replace("\0", "")) for word in reversed(words)]
    most, size = MOST_ALTERNATIVES + len(words), 0
    while waiting:
        text = waiting.pop()
        options = _first_brace(text)
        if options is None:
            done.append(text)
            continue
        size += len(text) * (1 + len(options))
        if size > MOST_EXPANDED or len(done) + len(waiting) + len(options) > most:
            return None
        waiting.extend(reversed(options))
    return re.sub("\0(\\d+)\0", lambda found: opaque[int(found[1])], " ".join(done))


def _first_brace(text: str) -> list[str] | None:
    """The text with its first brace that has alternatives replaced by each of them."""
    sequence = _SEQUENCE.search(text)
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
                return [""] * len(cuts)  # more than can be looked at
            if len(cuts) > 2:
                parts = [text[begin + 1 : end] for begin, end in pairwise(cuts)]
                return [text[: cuts[0]] + part + text[at + 1 :] for part in parts]
    if sequence is None:
        return None
    first, last = sequence[1], sequence[2]
    if first.isalpha() and last.isalpha():
        step = 1 if first <= last else -1
        items = [chr(code) for code in range(ord(first), ord(last) + step, step)]
    elif first.isalpha() or last.isalpha() or abs(int(first) - int(last)) >= LONGEST_SEQUENCE:
        return None
    else:
        step = 1 if int(first) <= int(last) else -1
        items = [str(number) for number in range(int(first), int(last) + step, step)]
    return [text[: sequence.start()] + item + text[sequence.end() :] for item in items]


# --- what an allowance must cover ---------------------------------------------------------------------------------


def _command_covered(words: list[ShellWord], patterns: Sequence[str], prefixes: int = 0) -> bool:
    first, text = words[0], _piece(words)
    assigned = _ASSIGNMENT.match(first.raw)
    if assigned is not None:
        return any(_assignments_covered(words, pattern) for pattern in patterns)
    if first.raw == "[":
        return _is_harmless_test(words) and _is_allowed(patterns, text, None)
    name = first.value
    if not first.exact or not _PROGRAM.fullmatch(name) or ".." in name.split("/"):
        return False
    if name in _SETTING:
        variables = _variables_set(words)
        return variables is not None and _is_allowed(patterns, text, name, variables)
    inner = _behind_prefix(words) if prefixes < MOST_PREFIXES else None
    if inner is not None and _command_covered(inner, patterns, prefixes + 1):
        return True
    if name == "let" or (name == "test" and not _is_harmless_test(words)):
        return False
    if name == "printf" and (len(words) == 1 or not words[1].exact or words[1].value.startswith("-v")):
        return False  # sets a variable
    program = os.path.basename(name)
    if program in ("find", "fd", "xargs") and prefixes < MOST_PREFIXES:
        return _is_allowed(patterns, text, name) and all(
            _command_covered(run, patterns, prefixes + 1) for run in _run_by(program, words)
        )
    return _is_allowed(patterns, text, name if program in RUNNERS else None)


def _is_allowed(patterns: Sequence[str], piece: str, beginning: str | None, naming: Sequence[str] = ()) -> bool:
    """Whether a pattern matches a piece; with `beginning` only one that begins so, and has these names in it."""
    return any(
        (beginning is None or pattern.startswith(beginning))
        and all(name in pattern for name in naming)
        and text_matcher(pattern, classes=False)(piece)
        for pattern in patterns
    )


def _assignments_covered(words: list[ShellWord], pattern: str) -> bool:
    """Whether one pattern covers assignments and the command behind them, each assignment with a word of its own."""
    for at, word in enumerate(words):
        assigned = _ASSIGNMENT.match(word.raw)
        if assigned is None:
            return _command_covered(words[at:], [pattern], 1)
        wanted, _, pattern = pattern.partition(" ")
        if not wanted.startswith(assigned[0]) or not text_matcher(wanted, classes=False)(_piece([word])):
            return False
    return not pattern


def _variables_set(words: list[ShellWord]) -> list[str] | None:
    """Of the variables that a command sets, those that decide which programs run; none if that is not certain."""
    found = []
    for word in words[1:2] if words[0].value == "for" else words[1:]:
        variable = _VARIABLE.match(word.raw)
        if variable is None or not (word.exact or variable[2]):
            # An option or a text; a variable whose name is computed, or has a subscript, which the shell evaluates.
            if word.raw not in _NUMBERS and (not word.exact or "[" in word.value or word.quoted):
                return None
        elif _DECIDING.fullmatch(variable[1]):
            found.append(variable[1])
    return found


def _is_harmless_test(words: list[ShellWord]) -> bool:
    """False if a word could be the name of a variable with a subscript, which the shell evaluates."""
    given = words[1:-1] if words[0].value == "[" else words[1:]
    if any("[" in word.value and ("$" in word.value or "`" in word.value) for word in given):
        return False
    unknown = [word for word in given if not word.exact and word.raw not in _NUMBERS]
    if not unknown:
        return True
    # One word each, where the meaning of the others is certain.
    single = all(_ONE_WORD.fullmatch(word.raw) for word in unknown)
    if len(given) == 2:
        return single and given[0].exact and given[0].value not in ("-v", "-R")
    return single and (len(given) == 1 or (len(given) == 3 and given[1].exact and given[1].value in _COMPARING))


def _piece(words: list[ShellWord]) -> str:
    """A command as rules that allow see it: words that are simple without their quotes, others as they are written."""
    return " ".join(word.value if word.exact and _ARGUMENT.fullmatch(word.value) else word.raw for word in words)


def _behind_prefix(words: list[ShellWord]) -> list[ShellWord] | None:
    """The command that a prefix with options that are known runs, without changing what its name means."""
    name, rest = words[0].value, words[1:]
    option = _PREFIX_OPTIONS.get(name)
    if option is None:
        return None
    given = re.match(option, " ".join(word.raw for word in rest[:2]) + " ")
    if given is not None:
        rest = rest[given[0].count(" ") :]
    elif name in ("timeout", "stdbuf"):
        return None
    if not rest or rest[0].value.startswith("-") or _ASSIGNMENT.match(rest[0].value):
        return None
    return rest


def _run_by(program: str, words: list[ShellWord]) -> Iterator[list[ShellWord]]:
    """The commands in the words of `find` and `xargs`; one that nothing matches where that is not known."""
    unknown = [ShellWord("\0", "\0", expands=True)]
    if program == "xargs":
        rest = words[1:]
        while rest and rest[0].raw in ("-0", "-r", "-t", "-x", "--null", "--no-run-if-empty"):
            rest = rest[1:]
        added = ShellWord("{}", "{}")  # stands for what it reads from its input
        yield [*rest, added] if rest and not rest[0].value.startswith("-") else unknown
        return
    if program == "fd" or any(word.expands or (word.globs and word.raw != "{}") for word in words):
        yield from [unknown] if program == "find" or any(word.raw[:1] == "-" for word in words) else []
        return
    for index, word in enumerate(words):
        if word.value in _FINDING:
            rest = words[index + 1 :]
            end = next((at for at, later in enumerate(rest) if later.value in (";", "+")), len(rest))
            yield rest[:end] or unknown


def _file_covered(operator: str, target: ShellWord, patterns: Sequence[str]) -> bool:
    sign = _WRITING.get(operator)
    if sign is None:
        return False
    if target.exact and target.value == _NO_FILES[0]:
        return True
    if not target.exact or not target.value:
        return _is_allowed(
            patterns, f"{sign} \0{target.raw}", sign
        )  # nothing but `> *` means a file whose name is not known
    return _is_allowed(patterns, f"{sign} {os.path.normpath(target.value)}", sign)
