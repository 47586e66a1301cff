"""Settings that hold for every test."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from pigeon.system.process.start import ProcessOwner
from support.agent_process import command_line
from support.fork_server import can_fork_agents, start_early, stop_servers
from support.left_running import forget_what_is_left, list_left_running, watch_loops
from support.open_files import list_open_files
from support.pigeon_serve import stop_shared_server
from support.postgres import make_database, stop_postgres
from support.run_times import RunTimes, is_controller, is_whole, sort_longest_first

LONGEST_TEMPORARY_FOLDER = 20

settings.register_profile("default", deadline=None, max_examples=100, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "proves(id, same, dialects): the promise of the contract that this test proves")
    config.addinivalue_line("markers", "proves_each(names, cases, dialects): one case of the test for each promise")
    config.addinivalue_line("markers", "leaves_open: files that stay open at the end of the test are meant to")
    config.addinivalue_line("markers", "leaves_running: tasks and timers that are left at its end are meant to")
    config.addinivalue_line("markers", "by_exec: agents are started, not forked: the start is part of the test")
    watch_loops()
    # A shell starts what runs in its background with interrupts and quits ignored, `nohup` with hang-ups ignored; so
    # would all programs of the tests be.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(ignored) is signal.SIG_IGN:
            signal.signal(ignored, signal.SIG_DFL)
    # Sockets need short paths, and tests have long names: below a long temporary folder there would be no room.
    if len(tempfile.gettempdir()) > LONGEST_TEMPORARY_FOLDER:
        os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"
    if is_controller(config):
        config.pluginmanager.register(RunTimes(config), "run_times")


def pytest_collection(session: pytest.Session) -> None:
    """Agents are forked by a server that takes a second to start: in a worker it does so while tests are collected."""
    is_ours = can_fork_agents() and "PIGEON_BIN" not in os.environ
    if is_ours and not is_controller(session.config) and is_whole(session.config):
        start_early(command_line()[0])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The workers of a run must agree on the names of tests: an address in one differs from process to process."""
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"an address is part of the name of a test: {named[0]}")
    if not is_controller(config) and is_whole(config):
        sort_longest_first(items, config.workerinput["seconds"])  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    # In this order: `pigeon serve` is forked as well, and killed with the fork server it would leave its workers.
    stop_shared_server()
    stop_servers()
    stop_postgres()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Function) -> None:
    forget_what_is_left(allowed=item.get_closest_marker("leaves_running") is not None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Function) -> Iterator[None]:
    """What was opened in the folder of a test is closed at its end, and what was begun in its event loop is over."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    yield
    if running := list_left_running():
        pytest.fail(f"left running: {', '.join(running)}", pytrace=False)
    if folder is not None and not item.get_closest_marker("leaves_open") and (left := list_open_files(folder)):
        pytest.fail(f"left open: {', '.join(left)}", pytrace=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker that has nothing left takes over what waits at another one, so that both end at the same time."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture
def postgres_url() -> str:
    """An empty database of the server that all tests of a run share."""
    return make_database()


@pytest.fixture
async def processes() -> AsyncIterator[ProcessOwner]:
    """What starts processes in a test; nothing of them may be left afterwards."""
    owner = ProcessOwner()
    yield owner
    assert await owner.kill_everything(10)
