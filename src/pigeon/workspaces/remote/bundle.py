"""The helper as one text, and the line of shell that starts it.

The modules of `helper/` are joined, without their imports of each other. The text is an argument of Python: it is on no
disk of the other machine, and the shell reads nothing beyond its line, so that what follows reaches the helper.
"""

from __future__ import annotations

import ast
import base64
import os
import zlib
from functools import lru_cache

_MODULES = ("files", "commands", "searching", "serving")
# Where Python is, the system's own first: others may be wrappers that take long to start.
_PYTHONS = (
    *("/usr/bin/python3", "/usr/local/bin/python3", "/opt/homebrew/bin/python3", "python3", "python"),
    *(f"python3.{minor}" for minor in range(14, 7, -1)),
)


@lru_cache(maxsize=1)
def join_helper() -> str:
    """The program: imports from its own modules are left out, because they are in the same text."""
    folder = os.path.join(os.path.dirname(__file__), "helper")
    parts = ["from __future__ import annotations\n"]
    for name in _MODULES:
        with open(os.path.join(folder, f"{name}.py"), encoding="utf-8") as file:
            text = file.read()
        lines = text.split("\n")
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("pigeon.", "__future__")):
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
        parts.append("\n".join(lines))
    return "\n".join(parts)


@lru_cache(maxsize=1)
def _pack_helper() -> str:
    return base64.b64encode(zlib.compress(join_helper().encode(), 9)).decode()


def make_first_line(nonce: str, may_use_python: bool = True) -> bytes:
    """What a POSIX shell is told first: become the helper, or say that there is no Python."""
    line = f"printf 'pigeon-{nonce} sh\\n'\n"
    if may_use_python:
        check = "import sys; sys.exit(sys.version_info < (3, 8))"
        start = "import base64,sys,zlib;exec(zlib.decompress(base64.b64decode(sys.argv[2])));main(sys.argv[1])"
        line = (
            f"for p in {' '.join(_PYTHONS)}; do "
            f"if \"$p\" -I -S -B -c '{check}' </dev/null >/dev/null 2>&1; then "
            f"exec \"$p\" -I -S -B -c '{start}' {nonce} {_pack_helper()}; fi; done; {line}"
        )
    return line.encode()
