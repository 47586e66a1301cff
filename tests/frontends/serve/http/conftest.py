"""One server for all tests here that only use it; those that wear it out have their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.pigeon_serve import AttackedServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with AttackedServer(tmp_path_factory.mktemp("served")) as server:
        yield server
