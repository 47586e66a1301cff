"""Agents with tool servers, in this process; the process that holds connections is shared by all tests of a worker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pigeon.mcp.connector_process import Connector, join_connector
from support.sdk_agents import ServedAgents


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def connector() -> AsyncIterator[Connector]:
    """It takes most of a second to start."""
    user = object()
    held = join_connector(user, os.environ)
    await held.wait_until_started()
    yield held
    await held.leave(user)


@pytest.fixture
def agents(connector: Connector, tmp_path: Path) -> ServedAgents:
    return ServedAgents(tmp_path)
