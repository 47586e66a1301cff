"""What contract tests share: a model server, fresh folders, and a way to start the real program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.agent_folders import AgentFolders, providers
from fakes.contract_manifest import behaviours
from fakes.model_server import ModelServer
from fakes.rpc_process import AGAINST, LAST_EVENTS, RpcProcess, Start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Against one of the originals, what is ours alone is left out, and where it is known to differ it may."""
    if not AGAINST:
        return
    known = json.loads((Path(__file__).parent / "originals.json").read_text("utf-8"))[AGAINST]
    ours = {behaviour.id for behaviour in behaviours() if not behaviour.is_of_pi}
    for item in items:
        marker = item.get_closest_marker("proves")
        if marker is not None and (ours & set(marker.args) or marker.kwargs.get("dialects", ("pi",)) != ("pi",)):
            item.add_marker(pytest.mark.skip(reason=f"not so in {AGAINST}"))
        elif item.name in known:
            item.add_marker(pytest.mark.xfail(reason=known[item.name]))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path)


@pytest.fixture
def start(folders: AgentFolders, server: ModelServer, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start the program with the model server configured; what a test starts is closed behind it.

    Nothing is kept on disk unless the test says `keeps=True`. With the mark `by_exec` agents are not forked.
    """
    running: list[RpcProcess] = []
    by_exec = request.node.get_closest_marker("by_exec") is not None

    def begin(
        *args: str,
        models: list[dict[str, Any]] | None = None,
        settings: dict[str, Any] | None = None,
        model: str | None = "fake-1",
        dialect: str = "pi",
        keeps: bool = False,
        **more: Any,
    ) -> RpcProcess:
        folders.configure(providers(server.url, models), settings)
        chosen = ["--provider", "fake", "--model", model] if model else []
        spoken = [] if AGAINST else ["--dialect", dialect]
        kept = [] if keeps else ["--no-session"]
        process = RpcProcess(folders, *kept, *chosen, *spoken, *args, **{"by_exec": by_exec, **more})
        process.last_event = LAST_EVENTS.get(dialect, "agent_end") if not AGAINST else process.last_event
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.is_over:
            continue
        if _failed(request):
            process.kill()
        else:
            process.close()


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
