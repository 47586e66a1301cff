"""How Pigeon starts Python programs of its own: isolated, so that neither a working directory nor a variable adds code.

Python imports `sitecustomize`, and every other module, from the folders in PYTHONPATH; an empty or relative entry means
the working directory, where an agent may have written. Its option -I ignores all its variables. The modules are found
where this process finds them and nowhere else.
"""

from __future__ import annotations

import os
import sys

_FIND_MODULES = "import sys; end = 2 + int(sys.argv[1]); sys.path[:] = sys.argv[2:end]; del sys.argv[1:end]; "


def make_python_command(module: str, *arguments: str, first: str = "") -> list[str]:
    """The command line that runs `main` of a module of Pigeon with these arguments, after the statements `first`."""
    folders = list(filter(os.path.isabs, sys.path))
    keeps_code = ("-B",) if sys.dont_write_bytecode else ()
    program = f"{first}{_FIND_MODULES}from {module} import main; main()"
    return [sys.executable, "-I", *keeps_code, "-c", program, str(len(folders)), *folders, *arguments]


def make_same_program_command(*arguments: str) -> list[str]:
    """The command line of this program, by the same interpreter with the same options, with other arguments."""
    own = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])]
    return [sys.executable, *own, *arguments]
