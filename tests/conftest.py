"""Settings that hold for every test."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from fakes.fork_server import stop_servers

settings.register_profile("default", deadline=None, max_examples=100, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "proves(*ids, dialects): the behaviours of the contract that this test shows")
    config.addinivalue_line("markers", "by_exec: agents are started, not forked: the start is part of the test")


def pytest_unconfigure() -> None:
    stop_servers()
