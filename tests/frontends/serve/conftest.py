"""Served conversations for the tests of a module, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.served_talk import ServedHouse
from pigeon.frontends.serve.conversation import ServedConversation


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHouse]:
    made = ServedHouse(tmp_path_factory.mktemp("house"))
    yield made
    made.close()


@pytest.fixture
def one(house: ServedHouse) -> Iterator[ServedConversation]:
    made = house.all.new(str(house.work))
    yield made
    if made.record.id in {known.record.id for known in house.all.known}:
        house.run(house.all.remove(made.record.id))
