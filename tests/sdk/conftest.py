"""The same tests for a conversation in this process, over a subprocess, a socket and a WebSocket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sdk_agents import KINDS, Conversations


@pytest.fixture(params=KINDS)
def conversations(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Conversations]:
    made = Conversations(request.param, tmp_path)
    yield made
    made.stop()
