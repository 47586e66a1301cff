"""The versions of the store in a database: one file of statements for each, in `migrations/`."""

from __future__ import annotations

import os
from functools import cache

from pigeon.wire.errors import StartupError

_FOLDER = os.path.join(os.path.dirname(__file__), "migrations")


@cache
def read_migrations() -> dict[int, str]:
    """The statements that lead to each version, in order."""
    names = sorted(name for name in os.listdir(_FOLDER) if name.endswith(".sql"))
    found: dict[int, str] = {}
    for name in names:
        with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
            found[int(name.removesuffix(".sql"))] = file.read()
    return found


def program_version() -> int:
    """The version that this program brings a store to; it also works with the next one."""
    return max(read_migrations())


def is_known_version(version: int) -> bool:
    return version in (program_version(), program_version() + 1)


def check_version(version: int | None, address: str) -> None:
    """Raise `StartupError` with the remedy, unless this program can work with a store of this version."""
    ours = program_version()
    if version is None:
        raise StartupError(f"There is no store in {address} yet: pigeon store init --store URL creates it")
    if version < ours:
        raise StartupError(
            f"The store in {address} has version {version}, and this program needs {ours}: "
            "pigeon store migrate --store URL brings it up to date"
        )
    if not is_known_version(version):
        raise StartupError(
            f"The store in {address} has version {version}, and this program knows {ours} and {ours + 1}: "
            "use a newer pigeon"
        )
