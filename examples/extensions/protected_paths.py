"""Keeps write and edit away from files that they must not touch.

pigeon --mode rpc --extension examples/extensions/protected_paths.py --protect=.env,.git,secrets
"""

from __future__ import annotations

import os

from pigeon.extensions import Block, Context, Extension, ToolCall

ext = Extension("protected-paths", needs=["ui"])
protect = ext.flag("protect", default=".env,.git,node_modules", help="names of files and folders, comma separated")


@ext.on(ToolCall, tools=["write", "edit"])
def guard(event: ToolCall, ctx: Context) -> Block | None:
    """A name anywhere in the path counts, also behind a link."""
    names = {name.strip() for name in str(protect.value).split(",") if name.strip()}
    path = os.path.join(ctx.cwd, os.path.expanduser(str(event.args.get("path", "")).removeprefix("@")))
    for spelled in (os.path.normpath(path), os.path.realpath(path)):
        found = names.intersection(spelled.split(os.sep))
        if found:
            ctx.ui.notify(f"Kept away from {spelled}", "warning")
            return Block(f'"{found.pop()}" is protected: {spelled} was not changed')
    return None
