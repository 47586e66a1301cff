"""Blocks as text for a terminal of a certain width, with colours or without.

`rich` does markdown, highlighting and wrapping; it is imported when the first block is painted. Every text is cleaned
first: control characters of models, tools and files never reach the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import singledispatchmethod
from io import StringIO
from typing import TYPE_CHECKING, Any

from pigeon.terminal.blocks import AnswerText, Block, ChatHead, Notice, ShellCard, ThinkingText, ToolCard, UserText
from pigeon.wire.base import Json
from pigeon.wire.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

RESULT_LINES = 6
SHELL_LINES = 40
DIFF_LINES = 40
LIVE_LINES = 4
LONGEST_LINE = 2000
NARROWEST = 20
# Sequences that move, colour or name things in terminals; what is left of them is made visible by `printable`.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
_FILLING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
_MAIN_ARGUMENT = ("command", "path", "file_path", "pattern", "query", "url", "name")
SIGN_NAMES = ("user", "done", "failed", "running", "thought", "bar", "cut", "dot")
STYLES = {
    "user": "bold cyan",
    "faint": "bright_black",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "tool": "bold",
    "added": "green",
    "removed": "red",
    "accent": "cyan",
}
SIGNS = dict(zip(SIGN_NAMES, "❯●✗◌✻│…·", strict=True))  # noqa: RUF001 - not read as other letters
ASCII_SIGNS = dict(zip(SIGN_NAMES, (">", "*", "x", "o", "*", "|", "...", "-"), strict=True))


def cleaned(text: str) -> str:
    """A text without anything that a terminal would act upon; tabs are spaces."""
    if text.isprintable():
        return text
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    # A carriage return writes over the line, as progress bars do: the last state is what counts.
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return printable(text.expandtabs(4))


def main_argument(args: Mapping[str, Json]) -> str:
    """What a call is about, in one line."""
    for name in _MAIN_ARGUMENT:
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(cleaned(value[:LONGEST_LINE]).split())
    return " ".join(f"{cleaned(name)}={cleaned(str(value)[:80])}" for name, value in list(args.items())[:4])


def duration(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Painter:
    """Paints blocks. `colours` is one of rich's colour systems, or none; `ascii_only` for terminals without Unicode."""

    def __init__(self, colours: str | None, ascii_only: bool = False, show_thinking: bool = False) -> None:
        self._colours = colours
        self._ascii = ascii_only
        self._console: Console | None = None
        self._show_thinking = show_thinking
        self.signs = ASCII_SIGNS if ascii_only else SIGNS

    @property
    def shows_thinking(self) -> bool:
        """Whether thoughts are painted in full."""
        return self._show_thinking

    def toggle_thinking(self) -> None:
        """Paint thoughts in full from now on, or fold them."""
        self._show_thinking = not self._show_thinking

    def paint(self, block: Block, width: int) -> str:
        """The lines of a finished block, each ended; with escape sequences if there are colours."""
        return self.rendered(list(self._parts(block, max(width, NARROWEST))), width)

    def live_markdown(self, text: str, width: int) -> str:
        """A part of an answer that may still change."""
        return self.rendered([self._markdown(text)], width)

    def live_card(self, card: ToolCard, now: float, width: int) -> str:
        """A call that runs, with the last lines of its output."""
        lines = cleaned(card.output[-LIVE_LINES * LONGEST_LINE :]).rstrip().split("\n") if card.output else []
        parts: list[RenderableType] = [self._title(card, now - card.started, width)]
        parts += [self._output_line(line, width) for line in lines[-LIVE_LINES:]]
        return self.rendered(parts, width)

    def faint(self, text: str, width: int) -> str:
        """A line of less importance."""
        return self.rendered([self._text(text, "faint")], width)

    def rendered(self, parts: Iterable[RenderableType], width: int) -> str:
        """Renderables of rich as text."""
        console = self._console_of(max(width, NARROWEST))
        for part in parts:
            console.print(part)
        file: Any = console.file
        text: str = file.getvalue()
        file.seek(0)
        file.truncate()
        # rich fills lines up to the width; a terminal that becomes narrower would wrap the filling.
        return _FILLING.sub(r"\1", text)

    def _console_of(self, width: int) -> Console:
        from rich.console import Console
        from rich.theme import Theme

        if self._console is None or self._console.width != width:
            theme = Theme({name: style if self._colours else "" for name, style in STYLES.items()})
            self._console = Console(
                file=StringIO(),
                width=width,
                force_terminal=self._colours is not None,
                color_system=self._colours,  # type: ignore[arg-type]
                no_color=self._colours is None,
                legacy_windows=False,
                highlight=False,
                markup=False,
                emoji=False,
                safe_box=self._ascii,
                theme=theme,
            )
        return self._console

    def _text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text().append(text, style=style)

    def _line(self, text: str, style: str) -> Text:
        """The beginning of a line that is never wrapped."""
        from rich.text import Text

        return Text(no_wrap=True).append(text, style=style)

    def _markdown(self, text: str) -> RenderableType:
        from rich.markdown import Markdown

        theme = "ansi_dark" if self._colours else "bw"
        return Markdown(cleaned(text), code_theme=theme, hyperlinks=False)

    @singledispatchmethod
    def _parts(self, block: Block, width: int) -> Iterable[RenderableType]:
        raise TypeError(f"no way to paint {block!r}")

    @_parts.register(UserText)
    def _user(self, block: UserText, width: int) -> Iterable[RenderableType]:
        yield self._text("")
        line = self._indented(cleaned(block.text).strip(), f"{self.signs['user']} ", "user")
        yield line
        if block.images:
            yield self._text(f"  [{block.images} image{'s' if block.images > 1 else ''}]", "faint")
        yield self._text("")

    @_parts.register(AnswerText)
    def _answer(self, block: AnswerText, width: int) -> Iterable[RenderableType]:
        yield self._markdown(block.text)
        yield self._text("")

    @_parts.register(ThinkingText)
    def _thought(self, block: ThinkingText, width: int) -> Iterable[RenderableType]:
        sign = self.signs["thought"]
        if not self._show_thinking:
            time = "" if block.seconds is None or block.seconds < 1 else f" for {duration(block.seconds)}"
            yield self._text(f"{sign} Thought{time}", "faint")
        else:
            yield self._text(f"{sign} Thinking", "faint")
            yield self._indented(cleaned(block.text).strip(), "  ", "faint italic")
        yield self._text("")

    @_parts.register(ToolCard)
    def _call(self, block: ToolCard, width: int) -> Iterable[RenderableType]:
        yield self._title(block, block.seconds or 0.0, width)
        if block.diff and not block.failed:
            yield from self.diff_lines(block.diff, width, DIFF_LINES)
        else:
            yield from self._cut_lines(block.output, width, RESULT_LINES)
        yield self._text("")

    @_parts.register(ShellCard)
    def _shell(self, block: ShellCard, width: int) -> Iterable[RenderableType]:
        title = self._text("! ", "accent")
        title.append(" ".join(cleaned(block.command).split()), style="tool")
        if block.exit_code:
            title.append(f"  exit code {block.exit_code}", style="bad")
        if not block.for_model:
            title.append("  (not shown to the model)", style="faint")
        yield title
        yield from self._cut_lines(block.output, width, SHELL_LINES)
        yield self._text("")

    @_parts.register(Notice)
    def _notice(self, block: Notice, width: int) -> Iterable[RenderableType]:
        style = {"info": "accent", "warning": "warn", "error": "bad", "faint": "faint"}[block.kind]
        yield self._indented(cleaned(block.text).strip(), f"{self.signs['dot']} ", style)

    @_parts.register(ChatHead)
    def _greeting(self, block: ChatHead, width: int) -> Iterable[RenderableType]:
        title = self._text("Pigeon ", "user")
        title.append(block.version, style="faint")
        yield title
        where = f"{block.model or 'no model'} {self.signs['dot']} {cleaned(block.cwd)}"
        yield self._text(where, "faint")
        for hint in block.hints:
            yield self._text(hint, "faint")
        yield self._text("")

    def _title(self, card: ToolCard, seconds: float, width: int) -> Text:
        state = "running" if card.running else "failed" if card.failed else "done"
        style = {"running": "warn", "failed": "bad", "done": "good"}[state]
        time = duration(seconds) if seconds >= 0.1 or card.running else ""
        title = self._line(f"{self.signs[state]} ", style)
        title.append(cleaned(card.name), style="tool")
        gist = main_argument(card.args)
        room = width - title.cell_len - len(time) - 4
        if gist:
            short = self._text(gist)
            short.truncate(max(room, 8), overflow="ellipsis")
            title.append(" ")
            title.append(short)
        if time:
            title.append(f"  {time}", style="faint")
        return title

    def diff_lines(self, diff: str, width: int, most: int) -> Iterable[Text]:
        """The lines of a change, coloured; only the first ones of a long one."""
        lines = cleaned(diff).rstrip().split("\n")
        for line in lines[:most]:
            style = {"+": "added", "-": "removed"}.get(line[:1], "faint")
            yield self._output_line(line, width, style)
        if len(lines) > most:
            yield self._more(len(lines) - most)

    def _cut_lines(self, output: str, width: int, most: int) -> Iterable[Text]:
        lines = cleaned(output[: most * LONGEST_LINE]).rstrip().split("\n") if output.strip() else []
        yield from (self._output_line(line, width) for line in lines[:most])
        hidden = output.rstrip().count("\n") + 1 - most
        if hidden > 0:
            yield self._more(hidden)

    def _more(self, count: int) -> Text:
        lines = "line" if count == 1 else "lines"
        return self._text(f"  {self.signs['bar']} {self.signs['cut']} {count:,} more {lines}", "faint")

    def _output_line(self, line: str, width: int, style: str = "") -> Text:
        text = self._line(f"  {self.signs['bar']} ", "faint")
        shown = self._text(line[:LONGEST_LINE], style)
        shown.truncate(max(width - 4, 8), overflow="ellipsis")
        text.append(shown)
        return text

    def _indented(self, text: str, prefix: str, style: str) -> RenderableType:
        """Wrapped behind a prefix, which stands before the first line only."""
        from rich.table import Table

        grid = Table.grid(padding=0)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(self._text(prefix, style), self._text(text, style))
        return grid
