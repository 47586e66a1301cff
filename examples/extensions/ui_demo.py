"""Every way to talk to the person at the host.

pigeon --mode rpc --extension examples/extensions/ui_demo.py    then prompt "/demo", or one of "/demo select" and so on
"""

from __future__ import annotations

from pigeon.extensions import CommandContext, Extension

ext = Extension("ui-demo", needs=["ui"])


async def select(ctx: CommandContext) -> str:
    """One of several."""
    return f"selected {await ctx.ui.select('Which bird?', ['pigeon', 'parrot', 'penguin'])!r}"


async def confirm(ctx: CommandContext) -> str:
    """Yes or no."""
    return f"confirmed {await ctx.ui.confirm('Fly south?', 'It is getting cold.')}"


async def quick(ctx: CommandContext) -> str:
    """A question that answers itself after a moment."""
    return f"in time {await ctx.ui.confirm('Quick!', 'You have a moment.', timeout=0.2)}"


async def text(ctx: CommandContext) -> str:
    """One line."""
    return f"typed {await ctx.ui.input('Name?', 'what the bird is called')!r}"


async def editor(ctx: CommandContext) -> str:
    """Several lines."""
    return f"edited {await ctx.ui.editor('A letter', 'Dear pigeon,')!r}"


async def notify(ctx: CommandContext) -> str:
    """Three kinds of notice."""
    ctx.ui.notify("All is well")
    ctx.ui.notify("Something is odd", "warning")
    ctx.ui.notify("Something is wrong", "error")
    return "notified"


async def status(ctx: CommandContext) -> str:
    """An entry of the status bar, set and cleared."""
    ctx.ui.set_status("ui-demo", "flying")
    ctx.ui.set_status("ui-demo")
    return "status shown"


async def widget(ctx: CommandContext) -> str:
    """A widget, shown and removed."""
    ctx.ui.set_widget("ui-demo", ["line one", "line two"], "belowEditor")
    ctx.ui.set_widget("ui-demo")
    return "widget shown"


async def title(ctx: CommandContext) -> str:
    """The title of the window, and the text of the editor."""
    ctx.ui.set_title("A bird's view")
    ctx.ui.set_editor_text("Tell me about pigeons")
    ctx.ui.paste_to_editor(" and parrots")
    return "title set"


async def terminal(ctx: CommandContext) -> str:
    """What only a terminal can show: nothing happens, and nothing is sent."""
    ui = ctx.ui
    shown = await ui.custom(object())
    ui.set_working_message("working")
    ui.set_working_indicator(frames=["-", "+"])
    ui.set_hidden_thinking_label("thinking")
    ui.set_footer("footer")
    ui.set_header("header")
    ui.set_editor_component(object())
    ui.set_autocomplete(object())
    ui.set_tools_expanded(True)
    ui.set_widget("ui-demo", object())
    theme = ui.set_theme("dark")
    return (
        f"custom {shown}, editor {ui.editor_text()!r}, expanded {ui.tools_expanded()}, themes {ui.themes()}, "
        f"theme {ui.theme('dark')}, set {theme.success}: {theme.error}, has_ui {ctx.has_ui}, mode {ctx.mode}"
    )


PARTS = {
    "select": select, "confirm": confirm, "quick": quick, "input": text, "editor": editor, "notify": notify,
    "status": status, "widget": widget, "title": title, "terminal": terminal,
}  # fmt: skip


@ext.command("demo", help="show every kind of dialog and notice")
async def demo(args: str, ctx: CommandContext) -> None:
    """All of them, or those that are named."""
    for name in args.split() or PARTS:
        ctx.ui.notify(f"{name}: {await PARTS[name](ctx)}")
