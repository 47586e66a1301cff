"""Objects that a forked process uses without writing to them, so that it shares their pages with its parent.

Python counts references in every object that it uses, and each page that is written to is copied for the process. From
CPython 3.12 on there are immortal objects, whose count is never written; `make_all_immortal` makes everything that
exists immortal. Where that is not possible, as on 3.11, a worker of `pigeon serve` uses 8 MB more, and nothing else
differs.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import CodeType, FunctionType
from typing import Any

# The reference count of an immortal object, for the CPython versions with which this was tested.
IMMORTAL_IN = ((3, 12), (3, 13))
IMMORTAL = (1 << 32) - 1


def can_make_immortal(interpreter: Any = sys) -> bool:
    """Whether the interpreter lays out objects as `make_all_immortal` needs.

    It must not be a debug build, free-threaded, 32-bit or an untested version. As a check, `None`, which is immortal in
    all other builds, must look as expected.
    """
    return (
        interpreter.implementation.name == "cpython"
        and interpreter.version_info[:2] in IMMORTAL_IN
        and interpreter.abiflags == ""
        and interpreter.byteorder == "little"
        and interpreter.maxsize > 1 << 32
        and ctypes.c_uint64.from_address(id(None)).value == IMMORTAL
    )


def make_all_immortal() -> bool:
    """Make everything that exists now immortal; returns False if that is not possible, see `can_make_immortal`.

    An immortal object lives as long as its process, and its finalizer never runs. Everything that a forked process
    inherits would live that long anyway: the process ends without cleaning up, and the parent has no file, socket or
    loop when it forks. Collections can be changed as before, objects that are put into them are counted, and the
    garbage collector ignores immortal objects.
    """
    if not can_make_immortal():
        return False
    waiting = gc.get_objects()
    while waiting:
        found: list[object] = []
        for one in waiting:
            count = ctypes.c_uint32.from_address(id(one))
            if count.value < IMMORTAL:
                count.value = IMMORTAL
                found += _referents_of(one)
        waiting = found
    return True


def _referents_of(one: object) -> list[object]:
    """The objects that an object refers to, including code and names, which the collector does not report."""
    if type(one) is CodeType:
        texts = (one.co_name, one.co_qualname, one.co_filename, one.co_linetable, one.co_exceptiontable)
        return [one.co_consts, one.co_names, *one.co_consts, *one.co_names, *one.co_varnames, *texts]
    if type(one) is FunctionType:
        return [*gc.get_referents(one), one.__name__, one.__qualname__]
    return gc.get_referents(one)
