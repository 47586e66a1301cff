"""Imports everything that an agent may need, for processes that fork agents: `pigeon serve` and `pigeon batch`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from pigeon.wire import codec

# Packages that no agent needs at its start: front ends, and MCP, of which `LATE` names what is needed.
NOT_OF_AGENTS = ("cli", "frontends", "mcp", "sdk")
# What those import inside functions.
LATE = (
    "concurrent.futures.thread",
    "jsonschema_rs",
    "pigeon.mcp.control",
    "pwd",
    "queue",
    "regex",
    "resource",
    "secrets",
    "shlex",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "uuid",
    "yaml",
)
# What those import if the extra that brings it is installed.
OPTIONAL = ("markdown_it", "nh3", "pygments.lexers")
# Modules that are programs of their own, or that do not survive a fork.
LEFT_OUT = ("pigeon.system.process.helper_main",)


def import_agent_modules() -> None:
    """Import what an agent may need, and prepare its records."""
    for _ in import_one_by_one():
        pass


def import_one_by_one() -> Iterator[None]:
    """The same in many short steps."""
    import importlib
    import pkgutil

    root = os.path.dirname(os.path.dirname(__file__))
    for package in packages_of_agents():
        for module in pkgutil.walk_packages([f"{root}/{package}"], f"pigeon.{package}."):
            if module.name not in LEFT_OUT:
                importlib.import_module(module.name)
                yield
    for name in LATE:
        importlib.import_module(name)
        yield
    for name in OPTIONAL:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
        yield
    yield from _warm_record_caches()


def packages_of_agents() -> list[str]:
    """The packages whose modules are imported: all that an agent may need."""
    import pkgutil

    root = os.path.dirname(os.path.dirname(__file__))
    found = (module.name for module in pkgutil.iter_modules([root]) if module.ispkg)
    return [name for name in found if name not in NOT_OF_AGENTS]


def _warm_record_caches() -> Iterator[None]:
    """msgspec analyses a record when it first meets it and keeps the result with its class, which forks then share."""
    found: list[type] = [msgspec.Struct]
    for record in found:
        found += record.__subclasses__()
    for record in found[1:]:
        if record.__module__.startswith(("pigeon.wire.", "pigeon.config.")):
            with suppress(TypeError, NameError):
                codec.prepare_type(record)
            yield
