"""The cells of a notebook, run in order in one namespace, as a kernel does: in a thread whose event loop is running."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import types
from pathlib import Path
from typing import Any


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    """The cells with code."""
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def run_cells(cells: list[dict[str, Any]]) -> list[str]:
    """Run them; returns what each of them printed."""
    # Types of a cell are looked up in the module that they name.
    module = types.ModuleType("__main__")
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    printed = []
    try:
        for number, cell in enumerate(cells):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), vars(module))
            printed.append(out.getvalue())
    finally:
        sys.modules["__main__"] = before
    return printed


def shown(cell: dict[str, Any]) -> str:
    """The text that the notebook has as the output of a cell."""
    return "".join(text for output in cell["outputs"] for text in output["text"])
