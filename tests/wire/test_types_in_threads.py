"""Types that several threads use for the first time: msgspec alone would crash the process."""

from __future__ import annotations

import subprocess
import sys

RACE = """
import sys, threading
import msgspec
from pigeon.wire import codec

sys.setswitchinterval(1e-7)

def chain(length):
    kinds, fields = [], [(f"f{number}", int) for number in range(10)]
    for at in range(length):
        kinds.append(msgspec.defstruct(f"C{at}", fields + ([("inner", kinds[-1])] if at else [])))
    return kinds

def value(depth):
    plain = {f"f{number}": 1 for number in range(10)}
    return {**plain, "inner": value(depth - 1)} if depth else plain

for _ in range(20):
    kinds, both = chain(40), threading.Barrier(2)

    def convert(depth):
        both.wait()
        codec.convert(value(depth), kinds[depth])

    threads = [threading.Thread(target=convert, args=(depth,)) for depth in (39, 38)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_two_threads_may_meet_a_type_for_the_first_time() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
