"""From a file to an extension: imported in the extension's own thread, all or nothing.

A module that raises, exits, hangs or registers something impossible leaves nothing behind but the text of its failure.

Taking extensions in: each in a thread of its own, with its flags; one that fails is reported and left out.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from pigeon.extensions.public.api import Extension
from pigeon.extensions.public.context import Place
from pigeon.extensions.public.failures import ExtensionFailed
from pigeon.extensions.runtime.discovery import ENTRY_POINTS, Source
from pigeon.extensions.runtime.dispatcher import Dispatcher
from pigeon.extensions.runtime.extension_thread import ExtensionThread
from pigeon.extensions.runtime.loaded_extension import Crew, LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.extensions.runtime.process_exits import guard, mend
from pigeon.extensions.runtime.session_access import LoopBridge, SessionAccess

LOAD_SECONDS = 15.0
_numbers = itertools.count(1)
NOT_PYTHON = "Pigeon's extensions are written in Python: name a .py file or a package with an __init__.py"


async def load_extension(source: Source, thread: ExtensionThread) -> Extension:
    """The extension of a source; raises `ExtensionFailed`."""
    holder: list[str] = []

    async def load() -> Extension:
        found = _entry_point(source) if source.origin == "package" else _module(source.path, holder)
        return await _extension_of(found, source)

    try:
        result = await thread.call(load, (), PausableTimeout(LOAD_SECONDS))
    except ExtensionFailed:
        for name in holder:
            _forget(name)
        raise
    assert isinstance(result, Extension)
    return result


def _module(path: str, holder: list[str]) -> ModuleType:
    if not path.endswith(".py"):
        raise ExtensionFailed(NOT_PYTHON)
    package = path.endswith("__init__.py")
    stem = path.rsplit("/", 2)[-2] if package else path.rsplit("/", 1)[-1].removesuffix(".py")
    clean = "".join(char if char.isalnum() else "_" for char in stem)
    name = f"pigeon_extension_{next(_numbers)}_{clean}"
    folder = [path.rsplit("/", 1)[0]] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folder)
    if spec is None or spec.loader is None:
        raise ExtensionFailed(NOT_PYTHON)
    module = importlib.util.module_from_spec(spec)
    holder.append(name)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _entry_point(source: Source) -> Any:
    from importlib.metadata import entry_points

    name = source.path.rpartition(":")[2]
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return point.load()
    raise ExtensionFailed(f'no installed package has an entry point "{name}" in the group {ENTRY_POINTS}')


async def _extension_of(found: Any, source: Source) -> Extension:
    if isinstance(found, Extension):
        return found
    setup = found
    extension: Extension | None = None
    if isinstance(found, ModuleType):
        extension = _declared(found)
        setup = getattr(found, "setup", None)
    if extension is None and not callable(setup):
        raise ExtensionFailed("it has neither an Extension at module level nor a function setup(ext)")
    if extension is None:
        extension = Extension(_name_of(source))
    if callable(setup):
        result = setup(extension)
        if hasattr(result, "__await__"):
            await result
    return extension


def _declared(module: ModuleType) -> Extension | None:
    given = getattr(module, "ext", None)
    if isinstance(given, Extension):
        return given
    found = {id(value): value for value in vars(module).values() if isinstance(value, Extension)}
    if len(found) > 1:
        raise ExtensionFailed('it makes several Extensions; call the one to load "ext"')
    return next(iter(found.values()), None)


def _name_of(source: Source) -> str:
    parts = source.path.rpartition(":")[2].replace("\\", "/").split("/")
    last = parts[-2] if parts[-1] == "__init__.py" and len(parts) > 1 else parts[-1]
    return last.removesuffix(".py")


def _forget(name: str) -> None:
    for known in [one for one in sys.modules if one == name or one.startswith(name + ".")]:
        sys.modules.pop(known, None)


SWITCH_SECONDS = 0.001


class ExtensionLoader:
    """Loads extensions into a dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        crew: Crew,
        bridge: LoopBridge,
        cwd: str,
        mode: str,
        flags: Mapping[str, bool | str],
    ):
        self._dispatcher = dispatcher
        self._crew = crew
        self._bridge = bridge
        self._cwd = cwd
        self._mode = mode
        self._flags = flags
        self._seen: set[str] = set()
        self.trusted = False
        guard()
        # A busy extension gives the interpreter up this often, so the protocol stays as quick as it can.
        sys.setswitchinterval(SWITCH_SECONDS)

    async def take(self, sources: Sequence[Source]) -> list[LoadedExtension]:
        """Load these, each once; never raises for one that fails."""
        taken = []
        for source in sources:
            loaded = await self._one(source) if self._is_new(source) else None
            if loaded is not None:
                taken.append(loaded)
        return taken

    def end(self) -> None:
        """Leave the process as an extension should have left it."""
        mend()

    def _is_new(self, source: Source) -> bool:
        real = os.path.realpath(source.path)
        new = real not in self._seen
        self._seen.add(real)
        return new

    async def _one(self, source: Source) -> LoadedExtension | None:
        def stray(text: str) -> None:
            self._bridge.post(lambda: self._dispatcher.reports(source.path, "background", text))

        thread = ExtensionThread(os.path.basename(source.path), stray)
        try:
            extension = await load_extension(source, thread)
        except ExtensionFailed as error:
            thread.close()
            self._dispatcher.reports(source.path, "load", str(error))
            return None
        self._give_flags(extension)
        place = Place(extension.name, self._mode, self._cwd, self.trusted, thread.loop)
        access = SessionAccess(extension.name, extension.needs, self._bridge)
        loaded = LoadedExtension(extension, source, thread, access, place, self._crew)
        extension.runtime = loaded
        self._dispatcher.join(loaded)
        return loaded

    def _give_flags(self, extension: Extension) -> None:
        for name, flag in extension.registry.flags.items():
            if name in self._flags:
                flag.give(self._flags[name])
