"""A limit on the processor time of work that cannot be interrupted otherwise."""

from __future__ import annotations

import re
import threading
import time

import pytest

from pigeon.system.time_box import TimeBox, TookTooLong


def test_a_match_that_would_take_for_ever_is_ended() -> None:
    began = time.process_time()
    with pytest.raises(TookTooLong), TimeBox(0.05):
        re.search(r"(a+)+$", "a" * 60 + "!")
    assert time.process_time() - began < 2


def test_work_that_is_quick_enough_is_left_alone() -> None:
    with TimeBox(5):
        assert re.search("a+", "baa")


def test_nothing_rings_after_the_block() -> None:
    with TimeBox(0.01):
        pass
    began = time.process_time()
    while time.process_time() - began < 0.05:
        re.search("a+b", "aaaa")


def test_outside_the_main_thread_there_is_no_limit_and_no_failure() -> None:
    found: list[object] = []

    def work() -> None:
        with TimeBox(0.001):
            found.append(re.search("a", "a"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found != [None]
    assert len(found) == 1
