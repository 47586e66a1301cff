"""From a file to a running extension: imported in a separate thread, all or nothing.

A module that raises, exits, hangs or registers something invalid leaves nothing behind but the text of its failure.
Every load creates a separate module with a unique name, so two agents in one process that load the same file share none
of its state.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from pigeon.extensions.adapters.contributions import Contributions
from pigeon.extensions.public.api import Extension
from pigeon.extensions.public.failures import ExtensionFailed
from pigeon.extensions.runtime.discovery import ENTRY_POINTS, Source
from pigeon.extensions.runtime.dispatcher import Dispatcher
from pigeon.extensions.runtime.extension_thread import ExtensionThread
from pigeon.extensions.runtime.loaded_extension import LoadedExtension
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.extensions.runtime.session_access import SessionAccess, SessionBinding
from pigeon.system.files import read_whole

LOAD_SECONDS = 15.0
LARGEST = 16 << 20
NOT_PYTHON = "Pigeon's extensions are written in Python: name a .py file or a package with an __init__.py"
_numbers = itertools.count(1)


class ExtensionLoader:
    """Loads extensions, each once and in a separate thread, and passes them to the dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        contributions: Contributions,
        binding: SessionBinding,
        flags: Mapping[str, bool | str],
        print_tracebacks: bool,
    ) -> None:
        self._dispatcher = dispatcher
        self._contributions = contributions
        self._binding = binding
        self._flags = flags
        self._print_tracebacks = print_tracebacks
        self._seen: set[str] = set()
        self._modules: list[str] = []

    async def load(self, sources: Sequence[Source]) -> dict[str, str]:
        """Load extensions; a failing one is reported, left out and returned by its path with the reason."""
        failed: dict[str, str] = {}
        for source in sources:
            problem = await self._load_one(source) if self._try_mark_seen(source) else None
            if problem is not None:
                failed[source.path] = problem
        return failed

    def forget_modules(self) -> None:
        for name in self._modules:
            _forget_modules(name)

    def _try_mark_seen(self, source: Source) -> bool:
        real = os.path.realpath(source.path)
        new = real not in self._seen
        self._seen.add(real)
        return new

    async def _load_one(self, source: Source) -> str | None:
        reports = self._dispatcher.reports
        bridge = self._binding.bridge

        def report(text: str) -> None:
            bridge.post(lambda: reports(source.path, "background", text))

        thread = ExtensionThread(os.path.basename(source.path), report, self._print_tracebacks)
        module = _module_name(source)
        try:
            extension = await _import_extension(source, module, thread)
            access = SessionAccess(extension.name, extension.needs, self._binding, thread.loop)
            loaded = LoadedExtension(extension, source, thread, access, self._contributions)
            extension.attach(loaded, self._flags)
        except ExtensionFailed as error:
            thread.close()
            _forget_modules(module)
            reports(source.path, "load", str(error))
            return str(error)
        self._modules.append(module)
        self._dispatcher.add(loaded)
        return None


async def _import_extension(source: Source, module: str, thread: ExtensionThread) -> Extension:
    """The extension of a source; raises `ExtensionFailed`."""

    async def load() -> Extension:
        found = _load_entry_point(source) if source.origin == "package" else _import_module(source.path, module)
        return await _resolve_extension(found, source)

    result = await thread.call(load, (), PausableTimeout(LOAD_SECONDS))
    assert isinstance(result, Extension)
    return result


class _BoundedLoader(SourceFileLoader):
    """Reads only regular files of a sensible size: reading a pipe would wait, and a device never ends."""

    def get_data(self, path: str) -> bytes:
        """The bytes of a source or compiled file; called by the import system."""
        return read_whole(path, LARGEST)


def _module_name(source: Source) -> str:
    clean = "".join(char if char.isalnum() else "_" for char in _name_of(source))
    return f"pigeon_extension_{next(_numbers)}_{clean}"


def _import_module(path: str, name: str) -> ModuleType:
    if not path.endswith(".py"):
        raise ExtensionFailed(NOT_PYTHON)
    folder = [os.path.dirname(path)] if os.path.basename(path) == "__init__.py" else None
    loader = _BoundedLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=folder)
    if spec is None or spec.loader is None:
        raise ExtensionFailed(NOT_PYTHON)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load_entry_point(source: Source) -> Any:
    from importlib.metadata import entry_points

    name = source.path.rpartition(":")[2]
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return point.load()
    raise ExtensionFailed(f'no installed package has an entry point "{name}" in the group {ENTRY_POINTS}')


async def _resolve_extension(found: Any, source: Source) -> Extension:
    if isinstance(found, Extension):
        return found
    setup = found
    extension: Extension | None = None
    if isinstance(found, ModuleType):
        extension = _find_declared_extension(found)
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


def _find_declared_extension(module: ModuleType) -> Extension | None:
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


def _forget_modules(name: str) -> None:
    # A copy: other threads import meanwhile.
    for known in [one for one in list(sys.modules) if one == name or one.startswith(name + ".")]:
        sys.modules.pop(known, None)
