"""Which dialect to use: the requested one, else by the name of the program, else by a flag that only one family has.

This is the registry of the dialects: a new one is imported in `_dialect_class_of` and named in `wire/answers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from pigeon.dialects.base import Dialect
from pigeon.wire.choices import DialectName
from pigeon.wire.errors import UsageError

NAMES: tuple[str, ...] = get_args(DialectName)
_TELLING_FLAGS = {"--no-title": "xcsh", "--no-rules": "xcsh", "--provider-session-id": "xcsh"}
_TRUE = ("1", "true", "yes", "on")


def choose_dialect_name(asked: str | None, called: str, arguments: Sequence[str], variables: Mapping[str, str]) -> str:
    """The name of the dialect; raises `UsageError` for an unknown name.

    `called` is the agent of the family under whose name the program was called, if any.
    """
    name = asked or variables.get("PIGEON_DIALECT") or called or _find_dialect_by_flag(arguments) or "pi"
    if name not in NAMES:
        raise UsageError(f'Unknown dialect "{name}". Use one of: {", ".join(NAMES)}')
    return name


def _find_dialect_by_flag(arguments: Sequence[str]) -> str | None:
    return next((_TELLING_FLAGS[flag] for flag in arguments if flag in _TELLING_FLAGS), None)


def make_dialect(name: str, version: str, variables: Mapping[str, str]) -> Dialect:
    """The dialect itself; only the chosen one is imported."""
    emit_title = variables.get("PI_RPC_EMIT_TITLE", "").strip().lower() in _TRUE
    return _dialect_class_of(name)(version, emit_title)


def switch_dialect(dialect: Dialect, name: str, deltas: bool) -> Dialect:
    """Another dialect for the same host, without any state of the previous one."""
    return _dialect_class_of(name)(dialect.version, dialect.emit_title, deltas)


def _dialect_class_of(name: str) -> type[Dialect]:
    kind: type[Dialect] = Dialect
    if name == "pi-latest":
        from pigeon.dialects.pi_latest import PiLatest as kind  # noqa: N813
    elif name == "pi-0.73":
        from pigeon.dialects.pi_073 import Pi073 as kind  # noqa: N813
    elif name == "omp":
        from pigeon.dialects.omp import Omp as kind  # noqa: N813
    elif name == "xcsh":
        from pigeon.dialects.xcsh import Xcsh as kind  # noqa: N813
    elif name == "companion":
        from pigeon.dialects.companion import Companion as kind  # noqa: N813
    return kind
