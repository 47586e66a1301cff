"""What a parent does so that forked processes share its memory: all goes on to work as it did."""

from __future__ import annotations

import subprocess
import sys
import weakref
from types import CodeType, SimpleNamespace

import pytest

from pigeon.system.process import shared_pages
from pigeon.system.process.shared_pages import NotedCalls, beside_others, can_stop_counting, put_side_by_side


class Shelf:
    """Has a function in each of the ways that a class can have one."""

    def __init__(self, number: int = 1, *, other: int = 2) -> None:
        self._numbers = (number, other)

    @property
    def total(self) -> int:
        """The sum."""
        return sum(number for number in self._numbers)

    @staticmethod
    def plain(number: int) -> int:
        return number + 1

    @classmethod
    def made(cls) -> Shelf:
        return cls(3)


class LongShelf(Shelf):
    @property
    def total(self) -> int:
        return super().total * 10


def outer(number: int) -> list[int]:
    return [number + other for other in range(3)]


TABLE = {"outer": outer}


def dead_proxy() -> object:
    """A weak reference that answers every question about itself with an error."""
    return weakref.proxy(Shelf())


def used() -> tuple[object, ...]:
    return Shelf().total, Shelf.made().total, Shelf.plain(1), LongShelf(2).total, TABLE["outer"](1)


def test_functions_are_replaced_by_copies_that_do_the_same() -> None:
    called: set[CodeType] = set()
    with NotedCalls(called):
        expected = used()
    mine = {code for code in called if code.co_filename == __file__}
    # Caches of libraries have such things, in lists and in classes.
    holders = [dead_proxy(), type("Holder", (), {"proxy": dead_proxy()})]
    before = outer, vars(Shelf)["__init__"], vars(Shelf)["total"], vars(Shelf)["plain"], vars(Shelf)["made"]
    put_side_by_side(mine)
    assert len(holders) == 2
    after = outer, vars(Shelf)["__init__"], vars(Shelf)["total"], vars(Shelf)["plain"], vars(Shelf)["made"]
    assert all(old is not new for old, new in zip(before, after, strict=True))
    assert TABLE["outer"] is outer
    assert before[0].__code__ is outer.__code__, "what still has the old function runs the copy of its code"
    assert used() == expected
    assert (outer.__name__, outer.__module__, outer.__annotations__) == ("outer", __name__, before[0].__annotations__)
    assert vars(Shelf)["total"].__doc__ == "The sum."
    assert vars(Shelf)["__init__"].__kwdefaults__ == {"other": 2}


def test_only_blocks_beside_other_objects_are_kept() -> None:
    blocks = [bytes(64) for _ in range(5000)]
    kept = {id(block) for block in beside_others(blocks, 64)}
    assert len(kept) < len(blocks) // 2
    pages = {id(block) // shared_pages.PAGE for block in blocks if id(block) not in kept}
    whole = shared_pages.PAGE // 112 - 1
    counts = [sum(id(block) // shared_pages.PAGE == page for block in blocks) for page in list(pages)[:20]]
    assert all(count >= whole for count in counts)


# In a process of its own: what is not counted stays.
UNCOUNTED = """
import gc, os, sys, weakref
from pigeon.system.process.shared_pages import stop_counting
class Gone: pass
kept = {"text": "some text of this test", "list": [object()], "proxy": weakref.proxy(Gone())}
made = stop_counting()
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
def test_an_interpreter_that_is_not_known_counts_on(other: dict[str, object]) -> None:
    known = {
        "implementation": sys.implementation,
        "version_info": (3, 12, 1),
        "abiflags": "",
        "byteorder": "little",
        "maxsize": (1 << 63) - 1,
    }
    assert can_stop_counting(SimpleNamespace(**known)) == ((3, 12) <= sys.version_info < (3, 14))
    assert not can_stop_counting(SimpleNamespace(**{**known, **other}))


def test_what_is_not_counted_any_more_can_be_used_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", UNCOUNTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
