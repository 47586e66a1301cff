"""How a parent prepares its memory so that forked processes share most of it, by writing to few of its pages.

Python counts references in every object that it uses, and each page that is written to is copied for the process. So
the parent runs what its processes will run, notes which functions are called (`NotedCalls`), and puts copies of them
side by side (`put_side_by_side`), so that the writes hit few pages. Free slots between old objects are used up
(`fill_holes`), and if the interpreter has immortal objects, everything that exists becomes immortal (`stop_counting`).
All this only saves memory.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import CodeType, FrameType, FunctionType
from typing import Any

PAGE = 4096
# Python allocates objects up to this size itself, in pools with a header of this size.
SMALL = 512
POOL_HEAD = 48
# How many free slots of each size are searched for.
HOLES = 5000
# What a `bytes` has besides its content.
HEAD = sys.getsizeof(b"")
# The reference count that marks an immortal object, for the CPython versions with which this was tested.
UNCOUNTED_IN = ((3, 12), (3, 13))
UNCOUNTED = (1 << 32) - 1
_filling: list[bytes] = []


class NotedCalls:
    """A context in which the code of every function that is called, in any thread, is added to the set."""

    def __init__(self, called: set[CodeType]) -> None:
        self._called = called

    def __enter__(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._called.add(frame.f_code)


class _Copies:
    """Copies of functions, each made once; copies that are made in succession are neighbours in memory."""

    def __init__(self, called: set[CodeType]) -> None:
        self._called = called
        self._texts: dict[str, str] = {}
        self._codes: dict[int, CodeType] = {}
        self._functions: dict[FunctionType, FunctionType | None] = {}

    def take(self, function: FunctionType) -> None:
        """Give a called function a copy of its code, and have the function itself copied when it is met."""
        if function.__code__ in self._called:
            function.__code__ = self._code(function.__code__)
            function.__name__, function.__qualname__ = self._text(function.__name__), self._text(function.__qualname__)
            self._functions[function] = None

    def of(self, value: Any) -> Any:
        """A copy of a function that was taken, or of what makes a property or a method of one; else the value."""
        if type(value) is FunctionType:
            return self._function(value) if value in self._functions else value
        if type(value) is property and self.of(value.fget) is not value.fget:
            return property(self.of(value.fget), value.fset, value.fdel, value.__doc__)
        if type(value) in (staticmethod, classmethod) and self.of(value.__func__) is not value.__func__:
            copy = type(value)(self.of(value.__func__))
            copy.__dict__.update(value.__dict__)
            return copy
        return value

    def _function(self, old: FunctionType) -> FunctionType:
        new = self._functions[old]
        if new is None:
            new = FunctionType(old.__code__, old.__globals__, old.__name__, old.__defaults__, old.__closure__)
            new.__qualname__ = old.__qualname__
            new.__kwdefaults__ = old.__kwdefaults__
            new.__annotations__ = old.__annotations__
            new.__doc__ = old.__doc__
            new.__module__ = old.__module__
            new.__dict__.update(old.__dict__)
            self._functions[old] = new
        return new

    def _code(self, code: CodeType) -> CodeType:
        if id(code) not in self._codes:
            # Functions within it are made when it runs, which writes to their code, whether they are called or not.
            inner = tuple(self._code(one) if isinstance(one, CodeType) else one for one in code.co_consts)
            name, qualified = self._text(code.co_name), self._text(code.co_qualname)
            self._codes[id(code)] = code.replace(co_consts=inner, co_name=name, co_qualname=qualified)
        return self._codes[id(code)]

    def _text(self, text: str) -> str:
        """A copy that is not shared with other code, as interned names are."""
        return self._texts.setdefault(text, f"{text} "[:-1])


def put_side_by_side(called: set[CodeType]) -> None:
    """Replace functions with this code by copies, in classes, modules and wherever else a dictionary or list has them.

    References from elsewhere keep the old function, which does the same.
    """
    gc.unfreeze()
    copies = _Copies(called)
    every = gc.get_objects()
    for one in every:
        if type(one) is FunctionType:
            copies.take(one)
    # `type()` instead of `isinstance`, which raises for a dead weak proxy.
    classes: list[Any] = [one for one in every if issubclass(type(one), type)]
    # Class dictionaries are changed through the class, which caches lookups.
    of_classes = {id(one) for each in classes for one in gc.get_referents(each) if type(one) is dict}
    for each in classes:
        for name, value in list(vars(each).items()):
            if (new := copies.of(value)) is not value:
                with suppress(TypeError):
                    type.__setattr__(each, name, new)
    for one in every:
        if type(one) is dict and id(one) not in of_classes:
            for key, new in _changed(one.items(), copies):
                one[key] = new
        elif type(one) is list and one is not every:
            for index, new in _changed(enumerate(one), copies):
                one[index] = new


def _changed(items: Iterable[tuple[Any, object]], copies: _Copies) -> list[tuple[Any, object]]:
    pairs = [(key, value) for key, value in items if type(value) is FunctionType]
    return [(key, new) for key, value in pairs if (new := copies.of(value)) is not value]


def fill_holes() -> None:
    """Use up the free slots between objects: a process would put its new objects there, all over the pages."""
    for size in range(SMALL - HEAD, 0, -16):
        blocks = [bytes(size) for _ in range(HOLES)]
        _filling.extend(beside_others(blocks, size))
        del blocks
    # The C library returns free memory to the system.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def beside_others(blocks: list[bytes], size: int) -> list[bytes]:
    """The blocks that share a page with something other than such blocks."""
    step = -(-(size + HEAD) // 16) * 16
    taken: dict[int, int] = {}
    for block in blocks:
        for page in _pages(block, step):
            start, end = max(id(block), page * PAGE), min(id(block) + step, (page + 1) * PAGE)
            taken[page] = taken.get(page, 0) + end - start
    full = {page for page, count in taken.items() if count > PAGE - POOL_HEAD - step}
    return [block for block in blocks if not full.issuperset(_pages(block, step))]


def _pages(block: bytes, step: int) -> range:
    return range(id(block) // PAGE, (id(block) + step - 1) // PAGE + 1)


def can_stop_counting(interpreter: Any = sys) -> bool:
    """Whether the interpreter lays out objects as `stop_counting` needs.

    It must not be a debug build, free-threaded, 32-bit or an untested version. As a check, `None`, which is immortal in
    all of the others, must look as expected.
    """
    return (
        interpreter.implementation.name == "cpython"
        and interpreter.version_info[:2] in UNCOUNTED_IN
        and interpreter.abiflags == ""
        and interpreter.byteorder == "little"
        and interpreter.maxsize > 1 << 32
        and ctypes.c_uint64.from_address(id(None)).value == UNCOUNTED
    )


def stop_counting() -> bool:
    """Make everything that exists now immortal; false if that is not possible, see `can_stop_counting`.

    Using an immortal object does not write to it; it lives as long as its process, and its finalizer never runs. What a
    forked process inherits would live that long anyway: the process ends without cleaning up, and the parent has no
    file, socket or loop when it forks. Collections can be changed as before, objects that are put into them are
    counted, and the garbage collector ignores immortal objects.
    """
    if not can_stop_counting():
        return False
    waiting = gc.get_objects()
    while waiting:
        found: list[object] = []
        for one in waiting:
            count = ctypes.c_uint32.from_address(id(one))
            if count.value < UNCOUNTED:
                count.value = UNCOUNTED
                found += _parts(one)
        waiting = found
    return True


def _parts(one: object) -> list[object]:
    """What an object refers to, including code and names, which the collector does not report."""
    if type(one) is CodeType:
        texts = (one.co_name, one.co_qualname, one.co_filename, one.co_linetable, one.co_exceptiontable)
        return [one.co_consts, one.co_names, *one.co_consts, *one.co_names, *one.co_varnames, *texts]
    if type(one) is FunctionType:
        return [*gc.get_referents(one), one.__name__, one.__qualname__]
    return gc.get_referents(one)
