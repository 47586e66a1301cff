"""Searching without ripgrep, by its rules and with its output; where it is installed, it runs instead."""

from __future__ import annotations

import os
import re
import stat

from pigeon.workspaces.remote.helper.commands import PIPE
from pigeon.workspaces.remote.helper.files import Held, decode_bytes, read_at, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Record = dict[str, Any]

IGNORE_FILES = ((".rgignore", True), (".ignore", True), (".gitignore", False), (".git/info/exclude", False))
LARGEST_IGNORE_FILE = 1 << 20
LONGEST_GLOB = 4096
WIDEST_LINE = 4000
# A file with a NUL byte in here is not searched at all, another one up to that byte.
FIRST_BLOCK = 1 << 16
GLOB_PARTS = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[|\\.|.", re.DOTALL)
NAMED_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "word": r"\w", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f",
    "print": " -~", "graph": "!-~", "ascii": r"\x00-\x7f",
}  # fmt: skip


def find_program(name: str) -> str | None:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def is_in_repository(folder: str) -> bool:
    while not os.path.exists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return False
    return True


def translate_glob(glob: str) -> str:
    """The regular expression of a line of an ignore file, or of a glob for names and paths."""
    parts, at = [], 0
    while at < len(glob):
        found = GLOB_PARTS.match(glob, at)
        assert found is not None
        part, at = found.group(), found.end()
        if part == "**/":
            # Two stars mean any folders only between slashes; elsewhere they are one star.
            parts.append("(?:.*/)?" if found.start() == 0 or glob[found.start() - 1] == "/" else "[^/]*/")
        elif part == "/**":
            parts.append("/.+")
        elif part == "**":
            parts.append(".*" if glob == "**" else "[^/]*")
        elif part == "*":
            parts.append("[^/]*")
        elif part == "?":
            parts.append("[^/]")
        elif part == "[":
            end = glob.find("]", at + 2 if glob[at : at + 1] in ("!", "^") else at + 1)
            if end < 0:
                raise re.error("unclosed class")
            body = glob[at:end]
            negated = body[:1] in ("!", "^")
            inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", body[1:] if negated else body)
            parts.append(f"(?!/)[{'^' if negated else ''}{inside}]")
            at = end + 1
        else:
            parts.append(re.escape(part[-1]))
    return "".join(parts)


def parse_ignore_line(line: str) -> tuple[Any, bool, bool] | None:
    if line.endswith("\r"):
        line = line[:-1]
    if not line.endswith("\\ "):
        line = line.rstrip()
    if not line or line.startswith("#") or len(line) > LONGEST_GLOB:
        return None
    pattern = line[1:] if line.startswith("!") else line
    path = pattern[:-1] if pattern.endswith("/") else pattern
    glob = (path[1:] if path.startswith("/") else path) if "/" in path else f"**/{path}"
    try:
        return re.compile(translate_glob(glob), re.DOTALL), pattern == line, path != pattern
    except re.error:
        return None


def parse_ignore_lines(text: str) -> list[Any]:
    """The lines of an ignore file, the last first."""
    lines = text.split("\n")[:10000]
    return [line for line in map(parse_ignore_line, reversed(lines)) if line is not None]


class IgnoreRules:
    """Which paths below a folder the ignore files exclude, by ripgrep's rules."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.files: dict[str, list[Any]] = {}
        self.in_repository = is_in_repository(self.root or "/")
        self.repositories: dict[str, bool] = {}
        self.user_file = find_user_ignore_file()

    def __call__(self, path: str, is_folder: bool) -> bool:
        full = f"{self.root}/{path}"
        for kind, reaches_in in IGNORE_FILES:
            folder = full
            while folder:
                folder = folder.rpartition("/")[0]
                verdict = self.find_verdict(f"{folder}/{kind}", full[len(folder) + 1 :], is_folder)
                if verdict is not None:
                    return verdict
                if not reaches_in and self.in_repository and self.is_repository(folder):
                    break
        return self.find_verdict(self.user_file, path, is_folder) or False

    def find_verdict(self, file: str, path: str, is_folder: bool) -> bool | None:
        for expression, ignores, folders_only in self.find_lines(file):
            if (is_folder or not folders_only) and expression.fullmatch(path):
                return bool(ignores)
        return None

    def find_lines(self, file: str) -> list[Any]:
        if file not in self.files:
            self.files[file] = parse_ignore_lines(read_small_text(file))
        return self.files[file]

    def is_repository(self, folder: str) -> bool:
        if folder not in self.repositories:
            self.repositories[folder] = os.path.exists(f"{folder}/.git")
        return self.repositories[folder]


def read_small_text(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_IGNORE_FILE:
            return ""
        text = read_at(descriptor, found.st_size).decode("utf-8", "surrogateescape")
        return text[1:] if text.startswith("\ufeff") else text
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def find_user_ignore_file() -> str:
    home = os.path.expanduser("~")
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for file in (f"{home}/.gitconfig", f"{settings}/git/config"):
        named = re.search(r'(?im)^\s*excludesfile\s*=\s*"?\s*(\S+?)\s*"?\s*$', read_small_text(file))
        if named:
            return os.path.expanduser(named.group(1))
    return f"{settings}/git/ignore"


def walk(root: str, folder: str, ignored: IgnoreRules) -> Iterator[tuple[str, str]]:
    """The paths below a folder that are not ignored, in ripgrep's order, each with its kind."""
    try:
        with os.scandir(os.path.join(root, folder) if folder else root) as listing:
            entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return
    for entry in entries:
        path = f"{folder}/{entry.name}" if folder else entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name == ".git" or ignored(path, is_folder):
            continue
        yield path, "folder" if is_folder else "file" if entry.is_file(follow_symlinks=False) else "other"
        if is_folder:
            yield from walk(root, path, ignored)


class Printer:
    """Writes what was found to the pipe, some at a time."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        self.parts.append(data)
        self.size += len(data)
        if self.size > PIPE:
            self.flush()

    def flush(self) -> None:
        write_all(1, b"".join(self.parts))
        self.parts, self.size = [], 0


def run_search(request: Record) -> int:
    """Search in a process of its own; prints what ripgrep would print, which runs in its place if it is there.

    After a list of files, which ends with an empty name, come the folders and other things, each with `d` or `o`.
    """
    held = Held(decode_bytes(request["path"]), request["held"])
    is_folder = not held.rest
    os.fchdir(held.open_folder(False))
    root = os.getcwd()
    program = find_program("rg") if request.get("ripgrep", True) else None
    name = os.fsdecode(held.name)
    if request["what"] == "files":
        return list_paths(root, program, request)
    if program is not None:
        rules = [] if is_in_repository(root) else ["--no-require-git"]
        argv = [program, *rules, *request["options"], "--", name if not is_folder else "."]
        os.execv(program, argv)
    return search_text(root, None if is_folder else name, request)


def list_paths(root: str, program: str | None, request: Record) -> int:
    ignored = IgnoreRules(root)
    printer = Printer()
    code = 0
    if program is not None:
        rules = [] if is_in_repository(root) else ["--no-require-git"]
        code = run_and_wait([program, *rules, *request["options"]])
    found = list(walk(root, "", ignored))
    if program is None:
        for path, kind in found:
            if kind == "file":
                printer.add(os.fsencode(path) + b"\0")
    printer.add(b"\0")
    for path, kind in found:
        if kind != "file":
            printer.add((b"d" if kind == "folder" else b"o") + os.fsencode(path) + b"\0")
    printer.flush()
    return code


def run_and_wait(argv: list[str]) -> int:
    status = os.waitpid(os.posix_spawn(argv[0], argv, dict(os.environ)), 0)[1]
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def search_text(root: str, name: str | None, request: Record) -> int:
    try:
        test = compile_line_test(request["pattern"], request.get("literal", False), request.get("ignoreCase", False))
    except re.error as error:
        write_all(1, f"regex parse error: {error}".encode())
        return 2
    printer = Printer()
    context = request.get("context", 0)
    found = False
    if name is not None:
        found = search_file(name, True, test, context, printer)
    else:
        wanted = compile_name_test(request.get("names", ""))
        for path, kind in walk(root, "", IgnoreRules(root)):
            if kind == "file" and wanted(os.path.basename(path), path):
                found = search_file(path, False, test, context, printer) or found
    printer.flush()
    return 0 if found else 1


def compile_name_test(glob: str) -> Callable[[str, str], bool]:
    """A test for names; with `!` at its start the glob excludes, and may be about paths."""
    if not glob:
        return lambda name, path: True
    excludes = glob.startswith("!")
    glob = glob[1:] if excludes else glob
    tests = [re.compile(translate_glob(one.lstrip("/")), re.DOTALL) for one in expand_braces(glob)]
    by_path = "/" in glob.rstrip("/")

    def matches(name: str, path: str) -> bool:
        if not excludes:
            return any(test.fullmatch(name) for test in tests)
        parts = path.split("/")
        subjects = ["/".join(parts[: end + 1]) for end in range(len(parts))] if by_path else parts
        return not any(test.fullmatch(subject) for test in tests for subject in subjects)

    return matches


def expand_braces(glob: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", glob)
    if found is None:
        return [glob]
    whole = [glob[: found.start()] + option + glob[found.end() :] for option in found.group(1).split(",")]
    return [each for one in whole[:256] for each in expand_braces(one)]


def compile_line_test(pattern: str, literal: bool, ignore_case: bool) -> Callable[[str], bool]:
    if literal and not ignore_case:
        return lambda line: pattern in line
    text = re.escape(pattern) if literal else translate_expression(pattern)
    search = re.compile(text, re.IGNORECASE if ignore_case else 0).search
    return lambda line: search(line) is not None


def translate_expression(pattern: str) -> str:
    """A regular expression as ripgrep understands it, in Python's spelling; where that is not possible, an error."""
    if re.search(r"(?<!\\)(?:\\\\)*\\[pP][{A-Z]", pattern):
        raise re.error("Unicode classes need ripgrep on this machine")
    if re.search(r"(?<!\\)(?:\\\\)*(?:\\[1-9]|\(\?<?[=!])", pattern):
        raise re.error("look-around and backreferences are not supported")
    pattern = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    pattern = re.sub(r"\\z", r"\\Z", pattern)
    pattern = re.sub(r"\\x\{([0-9A-Fa-f]+)\}", lambda found: re.escape(chr(int(found.group(1), 16))), pattern)
    return re.sub(r"\[:(\w+):\]", lambda found: NAMED_CLASSES.get(found.group(1), found.group()), pattern)


def search_file(path: str, as_text: bool, test: Callable[[str], bool], context: int, printer: Printer) -> bool:
    """Print the matching lines of a file; one that is not searched by name ends at its first NUL byte."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        data = file.read()
    return find_matches(os.fsencode(path), data, as_text, test, context, printer.add)


def find_matches(
    name: bytes, data: bytes, as_text: bool, test: Callable[[str], bool], context: int, add: Callable[[bytes], None]
) -> bool:
    """Give the records of the matching lines to `add`, as ripgrep prints them."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    elif data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    nul = -1 if as_text else data.find(b"\0")
    if 0 <= nul < FIRST_BLOCK:
        return False
    lines = (data if nul < 0 else data[: data.rfind(b"\n", 0, nul) + 1]).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    found, shown = False, 0
    for index, line in enumerate(lines):
        if not test(line.decode("utf-8", "surrogateescape")):
            continue
        found = True
        for near in range(max(shown, index - context), index):
            add(b"%s\0%d-%s\n" % (name, near + 1, lines[near][:WIDEST_LINE]))
        add(b"%s\0%d:%s\n" % (name, index + 1, line[:WIDEST_LINE]))
        shown = index + 1
        following = shown
        while following < len(lines) and following < index + 1 + context:
            if test(lines[following].decode("utf-8", "surrogateescape")):
                break
            add(b"%s\0%d-%s\n" % (name, following + 1, lines[following][:WIDEST_LINE]))
            following += 1
        shown = following
    if found and nul >= 0:
        remark = b'%s: WARNING: stopped searching binary file after match (found "\\0" byte around offset %d)\n'
        add(remark % (name, nul))
    return found
