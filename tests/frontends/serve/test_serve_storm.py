"""A small storm (`stress.serve_storm`): connections are lost at random, and the supervisor is killed once or twice."""

from __future__ import annotations

import asyncio

import pytest

from stress.serve_storm import storm

# With this one the supervisor is killed once.
SEED = 5


@pytest.mark.parametrize("shared", [1, 2])
def test_clients_that_lose_their_connection_lose_nothing_else(shared: int) -> None:
    assert asyncio.run(storm(disconnects=10, kills=0, seed=SEED, count=2, kills_every=12, shared=shared)) == []
