"""What `pyproject.toml` cannot say about packaging: installed modules come without notes to their authors.

A fifth of a module is docstrings and comments about its inside. They are read in the repository; installed, they only
take room, in memory too. They are replaced by empty lines, so that the lines of a traceback are those of the
repository. The docstrings that users and programs read stay: those of the library, of what extensions import, and of
the records of the protocol, which are part of its schema.
"""

from __future__ import annotations

import ast
import io
import os
import tokenize

from setuptools import setup
from setuptools.command.build_py import build_py

# Modules and folders of the package that keep the docstrings of all public names.
KEPT = ("__init__.py", "testing.py", "extensions/__init__.py", "extensions/public/", "sdk/", "wire/")


class BuildWithoutNotes(build_py):
    """Copies the modules into the wheel."""

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy one module."""
        outfile, copied = super().build_module(module, module_file, package)
        name = os.path.relpath(module_file, os.path.join("src", "pigeon")).replace(os.sep, "/")
        if not self.editable_mode:
            with open(module_file, encoding="utf-8") as file:
                text = packed(name, file.read())
            with open(outfile, "w", encoding="utf-8") as file:
                file.write(text)
        return outfile, copied


def packed(name: str, source: str) -> str:
    """A module of this name below the package as it is installed: the same program with the same lines."""
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    for node in described(ast.parse(source)):
        if name.startswith(KEPT) and not is_private(node):
            continue
        note = node.body[0]
        for row in range(note.lineno - 1, note.end_lineno or note.lineno):
            lines[row] = "\n"
        if len(node.body) == 1 and not isinstance(node, ast.Module):
            lines[note.lineno - 1] = " " * note.col_offset + "pass\n"
    return "".join(lines)


def described(tree: ast.Module) -> list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """All that has a docstring."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(tree) if isinstance(node, kinds) and ast.get_docstring(node) is not None]


def is_private(node: ast.AST) -> bool:
    """Whether it has a name that only its module uses."""
    name = getattr(node, "name", "")
    return name.startswith("_") and not name.endswith("__")


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithoutNotes})
