"""Objects that are made immortal, so that forked processes share their memory: all goes on to work as it did."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from pigeon.system.process.immortal_objects import can_make_immortal

# In a process of its own: what is immortal stays.
USED_AFTERWARDS = """
import gc, os, sys, weakref
from pigeon.system.process.immortal_objects import make_all_immortal
class Gone: pass
kept = {"text": "some text of this test", "list": [object()], "proxy": weakref.proxy(Gone())}
made = make_all_immortal()
assert made == ((3, 12) <= sys.version_info < (3, 14)), made
before = sys.getrefcount(kept["text"])
more = [kept["text"]] * 100
assert (sys.getrefcount(kept["text"]) == before) == made
del more
class Told:
    def __del__(self):
        ended.append(1)
ended = []
kept["list"].append(Told())
kept["new"] = Told()
watched = weakref.ref(kept["new"])
cycle = Told()
cycle.itself = cycle
del cycle, kept["list"][-1], kept["new"]
gc.collect()
assert len(ended) == 3 and watched() is None, "what came later goes when it is not needed any more"
with open(os.devnull, "wb") as file:
    number = file.fileno()
del file
assert not os.path.exists(f"/proc/self/fd/{number}")
gc.unfreeze()
gc.collect()
assert kept["text"] == "some text of this test"
pid = os.fork()
if pid == 0:
    kept.clear()
    gc.collect()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""


@pytest.mark.parametrize(
    "other",
    [
        {"implementation": SimpleNamespace(name="pypy")},
        {"version_info": (3, 11, 9)},
        {"version_info": (3, 14, 0)},
        {"abiflags": "t"},
        {"abiflags": "d"},
        {"byteorder": "big"},
        {"maxsize": (1 << 31) - 1},
    ],
    ids=str,
)
def test_an_interpreter_that_is_not_known_keeps_counting(other: dict[str, object]) -> None:
    known = {
        "implementation": sys.implementation,
        "version_info": (3, 12, 1),
        "abiflags": "",
        "byteorder": "little",
        "maxsize": (1 << 63) - 1,
    }
    assert can_make_immortal(SimpleNamespace(**known)) == ((3, 12) <= sys.version_info < (3, 14))
    assert not can_make_immortal(SimpleNamespace(**{**known, **other}))


def test_immortal_objects_can_be_used_as_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", USED_AFTERWARDS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
