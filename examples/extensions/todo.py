"""A list of things to do that the model keeps, and that follows the conversation: going back brings the old list back.

pigeon --mode rpc --extension examples/extensions/todo.py        then prompt "/todos"
"""

from __future__ import annotations

from typing import Any, Literal

from pigeon.extensions import CommandContext, Context, Extension, SessionStart, ToolContext, ToolOutput

ext = Extension("todo", needs=["ui", "entries"])
Item = dict[str, Any]


@ext.tool(name="checklist", snippet="Keep a list of things to do", guidelines=["Keep the checklist up to date."])
async def checklist(
    ctx: ToolContext, action: Literal["list", "add", "done", "clear"], text: str = "", number: int = 0
) -> ToolOutput:
    """Keep a list of things to do.

    Args:
        action: what to do with the list
        text: the new thing to do, for add
        number: which one is done, counted from 1
    """
    state = ctx.state("items")
    items: list[Item] = state.get([])
    if action == "add":
        if not text:
            raise ValueError("add needs a text")
        items.append({"text": text, "done": False})
    elif action == "done":
        if not 1 <= number <= len(items):
            raise ValueError(f"there is no number {number}; there are {len(items)}")
        items[number - 1]["done"] = True
    elif action == "clear":
        items = []
    if action != "list":
        state.set(items)
        show(ctx, items)
    return ToolOutput("\n".join(lines(items)) or "Nothing to do.", details={"items": items})


@ext.command("todos", help="show the list")
async def todos(args: str, ctx: CommandContext) -> None:
    """Show the list to the user; the model is not asked."""
    ctx.ui.notify("\n".join(lines(ctx.state("items").get([]))) or "Nothing to do.")


@ext.on(SessionStart)
async def started(event: SessionStart, ctx: Context) -> None:
    """Another conversation has another list."""
    show(ctx, ctx.state("items").get([]))


def show(ctx: Context, items: list[Item]) -> None:
    """A widget while there is something to do."""
    ctx.ui.set_widget("todo", lines(items) or None)


def lines(items: list[Item]) -> list[str]:
    """One line per thing."""
    return [f"{number}. [{'x' if item['done'] else ' '}] {item['text']}" for number, item in enumerate(items, 1)]
