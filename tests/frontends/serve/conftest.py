"""Served conversations for the tests of a module, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pigeon.frontends.serve.conversation import ServedConversation
from support.served_conversations import InProcessService


@pytest.fixture(scope="module", params=[1, 4], ids=["apart", "shared"])
def service(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[InProcessService]:
    made = InProcessService(tmp_path_factory.mktemp("service"), shared=request.param)
    yield made
    made.close()


@pytest.fixture
def one(service: InProcessService) -> Iterator[ServedConversation]:
    made = service.all.create_conversation(str(service.work))
    yield made
    if made.record.id in {known.record.id for known in service.all.known_conversations}:
        service.run(service.all.forget_conversation(made.record.id))
