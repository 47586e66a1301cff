"""Asks before dangerous shell commands.

    pigeon --mode rpc --extension examples/extensions/permission_gate.py [--strict]

With --strict such commands are refused without asking.
"""

from __future__ import annotations

import re

from pigeon.extensions import Block, Context, Extension, ToolCall

ext = Extension("permission-gate", needs=["ui"])
strict = ext.flag("strict", default=False, help="refuse instead of asking")

DANGEROUS = [
    re.compile(pattern)
    for pattern in (r"\brm\s+(-\w*[rf]\w*\s+)+", r"\bsudo\b", r"\bchmod\s+(-R\s+)?777\b", r"\bgit\s+push\b.*--force")
]


@ext.on(ToolCall, tools=["bash"])
async def gate(event: ToolCall, ctx: Context) -> Block | None:
    """Block what the user does not want; without an answer in time that is everything dangerous."""
    command = str(event.args.get("command", ""))
    if not any(pattern.search(command) for pattern in DANGEROUS):
        return None
    if strict:
        return Block("Dangerous commands are switched off (--strict)")
    choice = await ctx.ui.select(f"Run this command?\n\n  {command}", ["Yes", "No"], timeout=60)
    return None if choice == "Yes" else Block("The user did not allow this command")
