"""What contract tests share: a model server, fresh folders, and a way to start the real program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders
from support.agent_process import AGAINST, RpcProcess, Start
from support.contract import behaviours, dialects_of, proves
from support.contract_scenes import Stage


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test in each dialect of its promise, and one that proves several once for each of them."""
    test = metafunc.definition
    has_dialect = "dialect" in metafunc.fixturenames
    each = test.get_closest_marker("proves_each")
    if each is not None:
        names, rows = each.args
        # Without the fixture the dialect is what `dialects` says, or pi.
        cases = [
            pytest.param(*([dialect] if has_dialect else []), *row, id=f"{promise}-{dialect}", marks=proves(promise))
            for promise, row in rows.items()
            for dialect in (each.kwargs["dialects"] or dialects_of(promise) if has_dialect else ("pi",))
        ]
        own = ["dialect"] if has_dialect else []
        metafunc.parametrize((*own, *names.split(",")), cases, indirect=own)
        return
    proof = test.get_closest_marker("proves")
    chosen = any("dialect" in mark.args[0] for mark in test.iter_markers("parametrize"))
    if proof is None or chosen:
        return
    dialects = proof.kwargs["dialects"] or dialects_of(*proof.args, *proof.kwargs["same"])
    if has_dialect:
        metafunc.parametrize("dialect", dialects, indirect=True)
    elif not proof.kwargs["dialects"] and dialects != ("pi",):
        raise pytest.UsageError(f"{test.nodeid} does not run in {dialects}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Against one of the originals, what is ours alone is left out, and where it is known to differ it may."""
    if not AGAINST:
        return
    known = json.loads((Path(__file__).parent / "originals.json").read_text("utf-8"))[AGAINST]
    ours = {behaviour.id for behaviour in behaviours() if not behaviour.is_of_pi}
    for item in items:
        marks = list(item.iter_markers("proves"))
        promises = {promise for mark in marks for promise in mark.args}
        chosen = {dialect for mark in marks for dialect in mark.kwargs["dialects"] or ()}
        case = getattr(item, "callspec", None)
        dialects = {case.params["dialect"]} if case is not None and "dialect" in case.params else chosen
        reasons = [known[key] for key in (item.name, *promises) if key in known]
        if ours & promises or dialects - {"pi"}:
            item.add_marker(pytest.mark.skip(reason=f"not so in {AGAINST}"))
        elif reasons:
            item.add_marker(pytest.mark.xfail(reason=reasons[0]))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


@pytest.fixture
def start(tmp_path: Path, server: ModelServer, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start the program with the model server configured; what a test starts is closed behind it.

    Nothing is kept on disk unless the test says `keeps=True`. With the mark `by_exec` agents are not forked.
    """
    stage = Stage(tmp_path, server, by_exec=request.node.get_closest_marker("by_exec") is not None)
    yield stage.start
    stage.end_agents(failed=_failed(request))


def _failed(request: pytest.FixtureRequest) -> bool:
    report = getattr(request.node, "call_report", None)
    return report is None or report.failed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    if report.when == "call":
        item.call_report = report  # type: ignore[attr-defined]
    return report


@pytest.fixture
def agent(start: Start) -> RpcProcess:
    """The program with the ordinary configuration."""
    return start()


@pytest.fixture
def dialect(request: pytest.FixtureRequest) -> str:
    """The dialect that the test is run for; see `in_each`."""
    return str(getattr(request, "param", "pi"))


@pytest.fixture
def spoken(start: Start, dialect: str) -> RpcProcess:
    """The program in that dialect, with the ordinary configuration."""
    return start(dialect=dialect)
