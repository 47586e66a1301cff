"""An extension for contract tests: it asks, tells, fails, says no and ends the process, each when it is told to."""

from __future__ import annotations

from pathlib import Path

from pigeon.extensions import Cancel, CommandContext, Context, Extension
from pigeon.extensions.public.events import SessionBeforeFork, SessionBeforeSwitch, TurnStart

ext = Extension("contract")


def is_wanted(name: str) -> bool:
    """True if the test has put a file of this name into the working folder."""
    return Path(name).exists()


@ext.command("ask", help="Ask the host")
async def ask(args: str, ctx: CommandContext) -> None:
    """One dialog, and what came of it."""
    ui = ctx.ui
    questions = {
        "select": lambda: ui.select("Which?", ["a", "b"]),
        "confirm": lambda: ui.confirm("Sure?", "It cannot be undone."),
        "input": lambda: ui.input("Name?", "type here"),
        "editor": lambda: ui.editor("Edit", "line 1\nline 2"),
        "quick": lambda: ui.confirm("Quick?", "now", timeout=0.05),
        "quick-select": lambda: ui.select("Quick?", ["a"], timeout=0.05),
    }
    ui.notify(f"{args}: {await questions[args]()!r}")


@ext.command("tell", help="Show things at the host")
async def show_things(args: str, ctx: CommandContext) -> None:
    """Everything that needs no answer."""
    ctx.ui.notify("careful", "warning")
    ctx.ui.set_status("key", "working")
    ctx.ui.set_widget("box", ["one", "two"], "belowEditor")
    ctx.ui.set_title("a title")
    ctx.ui.set_editor_text("some text")


@ext.command("degraded")
async def use_terminal_features(args: str, ctx: CommandContext) -> None:
    """What only a terminal can do."""
    ui = ctx.ui
    ui.set_working_message("working")
    ui.set_working_indicator(frames=["-"])
    ui.set_footer(object())
    ui.set_header(object())
    ui.set_editor_component(object())
    ui.set_tools_expanded(True)
    ui.set_widget("box", object())
    theme = ui.set_theme("dark")
    facts = [
        await ui.custom(object()), ui.editor_text(), ui.tools_expanded(), ui.themes(), ui.theme("dark"),
        theme.success, theme.error, ctx.has_ui,
    ]  # fmt: skip
    ui.notify(f"facts: {facts!r}")


@ext.command("quit")
async def leave(args: str, ctx: CommandContext) -> None:
    """End the process."""
    ctx.shutdown()


@ext.on(TurnStart)
async def stumble(event: TurnStart, ctx: Context) -> None:
    """Fail if told to."""
    if is_wanted("stumble"):
        raise ValueError("stumbled")


@ext.on(SessionBeforeSwitch)
async def stay(event: SessionBeforeSwitch, ctx: Context) -> Cancel | None:
    """Say no if told to."""
    return Cancel() if is_wanted("veto") else None


@ext.on(SessionBeforeFork)
async def keep(event: SessionBeforeFork, ctx: Context) -> Cancel | None:
    """Say no if told to."""
    return Cancel() if is_wanted("veto") else None
