"""Conversations that are played once, so that many small tests can each check one promise on what was seen.

A `Stage` is one model server with fresh folders, and closes the agents that were started on it. A function that is
decorated with `scenario` plays on a stage and returns what it saw; tests name it as a fixture. It is played at most
once for each dialect in a process, however the tests are spread, and its agents have ended well before a test looks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from fakes.model_server import ModelServer
from support.agent_folders import AgentFolders, providers
from support.agent_process import AGAINST, LAST_EVENTS, RpcProcess

Seen = SimpleNamespace


class Stage:
    """A model server, folders, and the agents that were started with them."""

    def __init__(self, path: Path, server: ModelServer, dialect: str = "pi", by_exec: bool = False) -> None:
        self.folders = AgentFolders(path)
        self.path = path
        self.server = server
        self.dialect = dialect
        self._by_exec = by_exec
        self._running: list[RpcProcess] = []

    def start(
        self,
        *args: str,
        models: list[dict[str, Any]] | None = None,
        settings: dict[str, Any] | None = None,
        model: str | None = "fake-1",
        dialect: str | None = None,
        keeps: bool = False,
        **more: Any,
    ) -> RpcProcess:
        """Start the program with the model server configured; nothing is kept on disk unless `keeps` is set."""
        dialect = dialect or self.dialect
        self.folders.configure(providers(self.server.url, models), settings)
        chosen = ["--provider", "fake", "--model", model] if model else []
        spoken = [] if AGAINST else ["--dialect", dialect]
        kept = [] if keeps else ["--no-session"]
        process = RpcProcess(self.folders, *kept, *chosen, *spoken, *args, **{"by_exec": self._by_exec, **more})
        process.last_event = LAST_EVENTS.get(dialect, "agent_end") if not AGAINST else process.last_event
        self._running.append(process)
        return process

    def end_agents(self, failed: bool) -> None:
        """Close every agent, which checks that it ends well; after a failure they are killed."""
        for process in self._running:
            if process.is_over:
                continue
            if failed:
                process.kill()
            else:
                process.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_agents(failed=kind is not None)


def scenario(play: Callable[[Stage], Seen]) -> Any:
    """A fixture of this name with what the function saw in the dialect of the test."""
    seen: dict[str, Seen | Exception] = {}

    @pytest.fixture(name=play.__name__)
    def record(dialect: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
        if dialect not in seen:
            seen[dialect] = _play(play, dialect, tmp_path_factory.mktemp(play.__name__))
        found = seen[dialect]
        if isinstance(found, Exception):
            raise found
        return found

    return record


def _play(play: Callable[[Stage], Seen], dialect: str, path: Path) -> Seen | Exception:
    """An error is kept as well: a broken scenario fails every promise, but is not played again for each."""
    try:
        with ModelServer() as server, Stage(path, server, dialect) as stage:
            return play(stage)
    except (Exception, pytest.fail.Exception) as error:
        return error if isinstance(error, Exception) else AssertionError(str(error))
