"""What extension tests share: a stage that is cleared away behind each test, with the threads that hang on it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.extension_port import Stage
from pigeon.extensions.runtime.extension_thread import interrupt

ENDS_WITHIN = 0.1
_interrupted: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """Interrupt what a hostile extension left looping: it would share the interpreter with all tests that follow."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("extension ") and thread not in _interrupted:
            thread.join(ENDS_WITHIN)
            if thread.is_alive():
                _interrupted.add(thread)
                interrupt(thread)


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    yield made
    await made.runner.close()
