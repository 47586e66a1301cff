"""The user's permission rules as a gate before every tool; the host is asked where they say so."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.agent.interfaces import Gate
from pigeon.config.layers import Layers
from pigeon.session.session import Session
from pigeon.system.paths import PathResolver
from pigeon.wire.dialogs import SelectRequest


def permission_gate(
    layers: Layers, trusted: bool, session: Callable[[], Session | None], home: str, report: Callable[[str], None]
) -> Gate | None:
    """The gate, or none if there are no rules."""
    project = layers.project_permissions if trusted else None
    if layers.user_permissions is None and project is None:
        return None
    from pigeon.guard.permissions import PermissionGate
    from pigeon.guard.rules import rules_of

    rules = rules_of(layers.user_permissions, project, report)
    if rules is None:
        return None

    async def ask(title: str, options: list[str], timeout_ms: int) -> object:
        current = session()
        if current is None:
            return None
        said = await current.dialogs.ask(
            lambda id: SelectRequest(id=id, title=title, options=options, timeout=timeout_ms), timeout_ms
        )
        return None if said is None else said.value

    def paths() -> PathResolver:
        current = session()
        return PathResolver(current.journal.cwd if current is not None else "/", home)

    return PermissionGate(rules, ask, paths)
