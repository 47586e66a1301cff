"""Several gates as one: permissions before extensions.

A gate that changes the arguments cannot circumvent earlier gates: they check the changed ones again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.agent.interfaces import Gate, PreparedCall
from pigeon.wire.content import ToolCall
from pigeon.wire.events import ToolOutcome


class _GateChain:
    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    async def before_call(self, prepared: PreparedCall) -> None:
        for index, gate in enumerate(self._gates):
            arguments = prepared.arguments
            await gate.before_call(prepared)
            if prepared.arguments is not arguments:
                for earlier in self._gates[:index]:
                    await earlier.before_call(prepared)

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        for gate in self._gates:
            outcome, is_error = await gate.after_call(call, outcome, is_error)
        return outcome, is_error


def chain_gates(gates: Sequence[Gate]) -> Gate:
    """One gate that applies these in order, before a call and after it."""
    return gates[0] if len(gates) == 1 else _GateChain(gates)
