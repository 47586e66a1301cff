"""A server with a scripted model and a browser that is signed in, for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.model_server import ModelServer
from support.browser import ASKING, PARSER, Browser, ServedPigeon, Tab

HERE = Path(__file__).parent
SERVER_GONE = ("ERR_CONNECTION", "ERR_CONTENT_LENGTH_MISMATCH", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser that shares two processors with other tests may take a minute for what else takes a moment."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, models: ModelServer) -> Iterator[ServedPigeon]:
    with ServedPigeon(tmp_path_factory.mktemp("served"), models, ASKING) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory, served: ServedPigeon) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        stranger = Tab(started, served)
        stranger.shows("You are not signed in")
        stranger.shows("pigeon serve --link")
        Tab(started, served, link=True).shows("Start a session")
        yield started


@pytest.fixture
def tab(browser: Browser, served: ServedPigeon, models: ModelServer) -> Iterator[Tab]:
    models.forget()
    (served.folders.work / "parser.py").write_text(PARSER)
    made = Tab(browser, served, served.new_session())
    made.wait_until_settled()
    yield made
    # What a server that goes away leaves unanswered or half answered is no fault of the page.
    assert [one for one in made.complaints() if not any(sign in one for sign in SERVER_GONE)] == []
    made.close()
