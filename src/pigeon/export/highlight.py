"""Source code as HTML, its tokens in spans with a class of one letter; Pygments finds them.

Code comes from models, tools and files, and a lexer may be slow on what was made to be slow. So only lexers of
well-known languages are used, on texts of ordinary size and line length, and a text that takes too long is left plain.
What is shown is always the whole text: if the tokens do not add up to it, it is left plain, too.
"""

from __future__ import annotations

import os
import time
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pigeon.export.escaping import escape_html, to_plain_text

if TYPE_CHECKING:
    from pygments.lexer import Lexer

LONGEST_CODE = 40_000
LONGEST_LINE = 1_000
MOST_SECONDS = 0.5
# The lexers in use, each with its file names and endings.
# fmt: off
_ENDINGS = {
    "bash": "sh bash zsh .bashrc .profile .zshrc", "c": "c h", "cpp": "cc cpp cxx hh hpp", "csharp": "cs",
    "css": "css", "diff": "diff patch", "docker": "dockerfile", "go": "go", "html": "html htm", "ini": "ini cfg conf",
    "java": "java", "javascript": "js mjs cjs jsx", "json": "json jsonl ipynb", "kotlin": "kt kts", "lua": "lua",
    "make": "mk makefile", "markdown": "md markdown", "php": "php", "powershell": "ps1", "python": "py pyi",
    "ruby": "rb gemfile rakefile", "rust": "rs", "scala": "scala", "scss": "scss", "sql": "sql", "swift": "swift",
    "toml": "toml", "typescript": "ts tsx mts cts", "xml": "xml svg", "yaml": "yaml yml",
}
_OTHER_NAMES = {
    "c#": "csharp", "c++": "cpp", "console": "bash", "dockerfile": "docker", "golang": "go", "js": "javascript",
    "jsonc": "json", "json5": "json", "makefile": "make", "md": "markdown", "patch": "diff", "py": "python",
    "python3": "python", "rb": "ruby", "rs": "rust", "sh": "bash", "shell": "bash", "shell-session": "bash",
    "ts": "typescript", "yml": "yaml", "zsh": "bash", "kt": "kotlin", "cs": "csharp", "jsx": "javascript",
    "tsx": "typescript",
}
# The class of a kind of token; a kind that is not listed gets that of its parent.
_CLASSES = {
    "Token.Keyword": "k", "Token.Keyword.Constant": "n", "Token.Operator.Word": "k", "Token.Name.Tag": "k",
    "Token.Literal.String": "s", "Token.Literal.Number": "n", "Token.Literal": "n", "Token.Comment": "c",
    "Token.Comment.Preproc": "d", "Token.Name.Function": "f", "Token.Name.Class": "t", "Token.Keyword.Type": "t",
    "Token.Name.Exception": "t", "Token.Name.Namespace": "t", "Token.Name.Builtin": "b", "Token.Name.Decorator": "d",
    "Token.Name.Attribute": "d", "Token.Name.Variable": "b", "Token.Name.Constant": "n",
    "Token.Generic.Inserted": "i", "Token.Generic.Deleted": "x", "Token.Generic.Heading": "k",
    "Token.Generic.Subheading": "t", "Token.Generic.Strong": "k", "Token.Generic.Emph": "s",
}
# fmt: on
TOKEN_CLASSES = frozenset(_CLASSES.values())
_BY_ENDING = {ending: language for language, endings in _ENDINGS.items() for ending in endings.split()}


def find_language(name: str) -> str:
    """The language that a fence names (`py`, `Python`); empty for one that is not highlighted."""
    name = name.strip().lower()[:40]
    name = _OTHER_NAMES.get(name, name)
    return name if name in _ENDINGS else ""


def language_of(path: str) -> str:
    """The language of a file by its name; empty for one that is not highlighted."""
    name = os.path.basename(path[-400:]).lower()
    return _BY_ENDING.get(name.rpartition(".")[2]) or _BY_ENDING.get(name, "")


@lru_cache(maxsize=256)
def highlight_code(text: str, language: str) -> str | None:
    """The text as HTML; None if it is to be shown plain."""
    text = to_plain_text(text)
    if language not in _ENDINGS or len(text) > LONGEST_CODE or max(map(len, text.split("\n"))) > LONGEST_LINE:
        return None
    lexer = _load_lexer(language)
    started = time.thread_time()
    runs: list[tuple[str, list[str]]] = []
    seen = 0
    for _, kind, piece in lexer.get_tokens_unprocessed(text):
        name = _css_class_of(kind)
        if runs and (runs[-1][0] == name or piece.isspace()):
            runs[-1][1].append(piece)
        else:
            runs.append((name, [piece]))
        seen += len(piece)
        if time.thread_time() - started > MOST_SECONDS:
            return None
    if seen != len(text) or "".join(piece for _, pieces in runs for piece in pieces) != text:
        return None
    shown = ((name, escape_html("".join(pieces))) for name, pieces in runs)
    return "".join(f'<span class="{name}">{code}</span>' if name else code for name, code in shown)


@cache
def _load_lexer(language: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(language)


@cache
def _css_class_of(kind: Any) -> str:
    while kind.parent is not None:
        if (name := _CLASSES.get(str(kind))) is not None:
            return name
        kind = kind.parent
    return ""
