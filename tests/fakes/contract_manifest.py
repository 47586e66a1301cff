"""The contract as data: every behaviour that a client can see, and what we do differently on purpose.

`behaviours.jsonl` holds one behaviour per line: an id, the sources that ask for it (`SOURCES`), the dialects in which
tests show it, the dialects in which it is still to come, and the sentence. A behaviour with no dialect yet is planned.
`divergences.json` holds where we leave the originals, and makes `docs/divergences.md`.
"""

from __future__ import annotations

import ast
import contextlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "contract"
PAGE = Path(__file__).parents[2] / "docs" / "divergences.md"
DIALECTS = ("pi", "pi-latest", "omp", "xcsh", "companion")
SOURCES = {
    "pi-rpc": "the RPC document of pi",
    "pi-note": "the note on embedding pi",
    "omp-rpc": "the RPC document of oh-my-pi",
    "xcsh-rpc": "the RPC document of xcsh",
    "companion-rpc": "the early RPC document that companion speaks",
    "observed": "seen in the originals, in no document",
    "ours": "our own promise, beyond or against the originals",
}


@dataclass(frozen=True)
class Behaviour:
    """One thing that a client can see."""

    id: str
    source: tuple[str, ...]
    dialects: tuple[str, ...]
    later: tuple[str, ...]
    says: str

    @property
    def is_of_pi(self) -> bool:
        """True if pi itself should show it too."""
        return bool({"pi-rpc", "pi-note", "observed"} & set(self.source))

    @property
    def is_planned(self) -> bool:
        return not self.dialects


@dataclass(frozen=True)
class Divergence:
    """Where we leave the originals, and why."""

    id: str
    pi: str
    pigeon: str
    why: str


@dataclass(frozen=True)
class Proof:
    """A test and what it declares to show."""

    test: str
    ids: tuple[str, ...]
    dialects: tuple[str, ...]


def proves(*ids: str, dialects: tuple[str, ...] = ("pi",)) -> pytest.MarkDecorator:
    """Declare which behaviours a contract test shows, and in which dialects."""
    return pytest.mark.proves(*ids, dialects=dialects)


@cache
def behaviours() -> list[Behaviour]:
    """The manifest."""
    lines = (FOLDER / "behaviours.jsonl").read_text("utf-8").splitlines()
    return [_behaviour(json.loads(line)) for line in lines if line]


def _behaviour(data: dict[str, Any]) -> Behaviour:
    return Behaviour(data["id"], tuple(data["source"]), tuple(data["dialects"]), tuple(data["later"]), data["says"])


@cache
def divergences() -> list[Divergence]:
    """Where we leave the originals on purpose."""
    return [Divergence(**item) for item in json.loads((FOLDER / "divergences.json").read_text("utf-8"))]


@cache
def proofs() -> list[Proof]:
    """Every contract test, with what it declares; read from the source, so that nothing has to run."""
    found = []
    for path in sorted(FOLDER.glob("test_*.py")):
        if path.name == "test_manifest.py":
            continue
        body = ast.parse(path.read_text("utf-8")).body
        constants = _constants(body)
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found += _proofs(f"{path.name}::{node.name}", node, constants)
    return found


def _proofs(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, constants: dict[str, Any]) -> list[Proof]:
    """One for each declaration; an empty one for a test that declares nothing."""
    found = []
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "proves":
            ids: list[str] = []
            for argument in call.args:
                if isinstance(argument, ast.Starred):
                    ids += _value(argument.value, constants)
                else:
                    ids.append(_value(argument, constants))
            given = next((word.value for word in call.keywords if word.arg == "dialects"), None)
            dialects = ("pi",) if given is None else tuple(_value(given, constants))
            found.append(Proof(name, tuple(ids), dialects))
    return found or [Proof(name, (), ())]


def _constants(body: list[ast.stmt]) -> dict[str, Any]:
    """Names that a test file gives to plain values at its top."""
    found: dict[str, Any] = {"DIALECTS": DIALECTS}
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def _value(node: ast.expr, constants: dict[str, Any]) -> Any:
    return constants[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def divergences_page() -> str:
    """The page for people."""
    head = (
        "# Where Pigeon differs from pi, on purpose\n\n"
        "Clients written for the originals keep working; each row says what they could notice. This page is generated\n"
        "from `tests/contract/divergences.json`: change it there, then run `make divergences`.\n\n"
        "| id | pi | Pigeon | why |\n|---|---|---|---|\n"
    )
    rows = [f"| `{one.id}` | {one.pi} | {one.pigeon} | {one.why} |" for one in divergences()]
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(divergences_page(), "utf-8")
