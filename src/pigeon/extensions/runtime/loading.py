"""From a file to an extension: imported in the extension's own thread, all or nothing.

A module that raises, exits, hangs or registers something impossible leaves nothing behind but the text of its failure.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from types import ModuleType
from typing import Any

from pigeon.extensions.public.api import Extension
from pigeon.extensions.public.failures import ExtensionFailed
from pigeon.extensions.runtime.discovery import ENTRY_POINTS, Source
from pigeon.extensions.runtime.extension_thread import Workshop
from pigeon.extensions.runtime.pausable_timeout import Patience

LOAD_SECONDS = 15.0
_numbers = itertools.count(1)
NOT_PYTHON = "Pigeon's extensions are written in Python: name a .py file or a package with an __init__.py"


async def loaded(source: Source, workshop: Workshop) -> Extension:
    """The extension of a source; raises `ExtensionFailed`."""
    holder: list[str] = []

    async def load() -> Extension:
        found = _entry_point(source) if source.origin == "package" else _module(source.path, holder)
        return await _extension_of(found, source)

    try:
        result = await workshop.call(load, (), Patience(LOAD_SECONDS))
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
