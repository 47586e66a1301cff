"""What contract tests share: the contract as data, dialects to run a test in, and tool calls that rules are about.

`behaviours.jsonl` holds one behaviour per line: an id, the sources that ask for it (`SOURCES`), the dialects in which
tests show it, the dialects in which it is still to come, and the sentence. A behaviour with no dialect yet is planned.
`divergences.json` holds where we leave the originals, and makes `docs/divergences.md`. `in_each` runs a test for
several dialects, which the fixtures `dialect` and `spoken` bring in.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_process import RpcProcess
from support.records import finished_messages, tool_texts


def in_each(*names: str) -> pytest.MarkDecorator:
    """Run the test once for each of these dialects."""
    return pytest.mark.parametrize("dialect", names, indirect=True)


Record = dict[str, Any]


def calls(host: RpcProcess, server: ModelServer, *made: Call) -> int:
    """Prompt, and let the model call; gives the place where this began."""
    server.answers(*made)
    server.answers("done")
    start = host.mark()
    host.ask("prompt", message="x")
    return start


def question(host: RpcProcess, start: int) -> Record:
    """The first question about permission since then."""
    return host.wait_event("extension_ui_request", start, method="select")


def reply(host: RpcProcess, request: Record, **answer: Any) -> None:
    """Answer a question."""
    host.send({"type": "extension_ui_response", "id": request["id"], **answer})


def results(host: RpcProcess, start: int) -> list[tuple[bool, str]]:
    """Whether each call failed, and its text, once the run has ended."""
    host.wait_end(start)
    records = host.since(start)
    failed = [message["isError"] for message in finished_messages(records, "toolResult")]
    return list(zip(failed, tool_texts(records), strict=True))


FOLDER = Path(__file__).parents[1] / "contract"
PAGE = Path(__file__).parents[2] / "docs" / "divergences.md"
DIALECTS = ("pi", "pi-latest", "pi-0.73", "omp", "xcsh", "companion")
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
    same: tuple[str, ...]
    dialects: tuple[str, ...]

    def pairs(self) -> list[tuple[str, str]]:
        """Each promise with each dialect it is shown in; one of several is promised only where its document holds."""
        if not self.same:
            return [(promise, dialect) for promise in self.ids for dialect in self.dialects]
        stated = (*self.ids, *self.same)
        return [(one, dialect) for one in stated for dialect in self.dialects if dialect in dialects_of(one)]


def proves(
    promise: str, *, same: tuple[str, ...] = (), dialects: tuple[str, ...] | None = None
) -> pytest.MarkDecorator:
    """Declare the promise that a contract test proves; `same` restate it in other documents.

    A test that has the fixture `dialect` is run in each dialect that the manifest names for them, unless it says which.
    """
    return pytest.mark.proves(promise, same=same, dialects=dialects)


def proves_each(
    names: str, cases: Mapping[str, Any], *, dialects: tuple[str, ...] | None = None
) -> pytest.MarkDecorator:
    """Run a test once for each of these promises, with what the mapping gives for these arguments."""
    return pytest.mark.proves_each(names, cases, dialects=dialects)


@cache
def behaviours() -> list[Behaviour]:
    """The manifest."""
    lines = (FOLDER / "behaviours.jsonl").read_text("utf-8").splitlines()
    return [_behaviour(json.loads(line)) for line in lines if line]


def _behaviour(data: dict[str, Any]) -> Behaviour:
    return Behaviour(data["id"], tuple(data["source"]), tuple(data["dialects"]), tuple(data["later"]), data["says"])


def dialects_of(*promises: str) -> tuple[str, ...]:
    """The dialects in which tests show any of these behaviours; none if they are not in the manifest."""
    found = {dialect for promise in promises for dialect in _dialects_by_id().get(promise, ())}
    return tuple(dialect for dialect in DIALECTS if dialect in found)


@cache
def _dialects_by_id() -> dict[str, tuple[str, ...]]:
    return {one.id: one.dialects for one in behaviours()}


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
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        given = {word.arg: _value(word.value, constants) for word in call.keywords if word.arg in ("dialects", "same")}
        if call.func.id == "proves":
            ids = tuple(_value(argument, constants) for argument in call.args)
            found.append(_proof(name, ids, given.get("dialects"), given.get("same", ())))
        elif call.func.id == "proves_each":
            cases = _value(call.args[1], constants)
            found += [_proof(f"{name}[{promise}]", (promise,), given.get("dialects"), ()) for promise in cases]
    return found or [Proof(name, (), (), ())]


def _proof(name: str, ids: tuple[str, ...], given: tuple[str, ...] | None, same: tuple[str, ...]) -> Proof:
    return Proof(name, ids, same, tuple(given) if given else dialects_of(*ids, *same))


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
