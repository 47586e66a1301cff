"""What the tests of all APIs use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pigeon.providers.http.client import HttpClient


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient({})
    yield client
    await client.aclose()
