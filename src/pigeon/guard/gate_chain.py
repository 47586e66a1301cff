"""Several gates as one: permissions before extensions.

A gate that changes the arguments cannot get around those before it: they are asked again about the changed ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.agent.interfaces import Gate
from pigeon.wire.base import Json
from pigeon.wire.content import ToolCall
from pigeon.wire.events import ToolOutcome


class _GateChain:
    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    async def before(self, call: ToolCall, arguments: dict[str, Json]) -> dict[str, Json]:
        for index, gate in enumerate(self._gates):
            passed = await gate.before(call, arguments)
            if passed != arguments:
                for earlier in self._gates[:index]:
                    passed = await earlier.before(call, passed)
            arguments = passed
        return arguments

    async def after(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        for gate in self._gates:
            outcome, is_error = await gate.after(call, outcome, is_error)
        return outcome, is_error


def chain(gates: Sequence[Gate]) -> Gate:
    """One gate that asks these in order, before a call and after it."""
    return gates[0] if len(gates) == 1 else _GateChain(gates)
