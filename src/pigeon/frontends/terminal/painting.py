"""Blocks as text for a terminal of a certain width, with colours or without.

A block is its lines and one blank line after them. `rich` keeps the styles; it is imported when the first block is
painted. Every text is cleaned first: control characters of models, tools and files never reach the terminal. Only the
terminal's own colours are used, and what matters less is dim, so that light and dark backgrounds both work.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatchmethod
from io import StringIO
from typing import TYPE_CHECKING

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.terminal.agent_rows import WAITS, describe_use
from pigeon.frontends.terminal.blocks import (
    AnswerText,
    BackgroundOutput,
    Block,
    ChatHead,
    Notice,
    ShellCard,
    ThinkingText,
    ToolCard,
    UserText,
)
from pigeon.frontends.terminal.content.tool_details import (
    LONGEST_LINE,
    ToolDetails,
    details_of,
    first_line,
    first_words,
    format_count,
    subject_of,
    tail_of_output,
)
from pigeon.system.clock import duration_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from pigeon.frontends.terminal.agent_rows import AgentRow
    from pigeon.frontends.terminal.content.markdown import MarkdownLines

SHELL_LINES = 40
LIVE_LINES = 4
NARROWEST = 20
DEEPEST = 6
LEAST_TIME = 0.1
LONGEST_REASON = 400
LONGEST_WHOLE = 2_000
SIGN_NAMES = ("user", "done", "failed", "running", "thought", "bar", "cut", "dot", "item", "rule")
STYLES = {
    "user": "bold cyan",
    "said": "bold",
    "faint": "dim",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "tool": "bold",
    "added": "green",
    "removed": "red",
    "accent": "cyan",
    "code": "cyan",
}
SIGNS = dict(zip(SIGN_NAMES, "❯●✗◌✻│…·•─", strict=True))  # noqa: RUF001 - not read as other letters
ASCII_SIGNS = dict(zip(SIGN_NAMES, (">", "*", "x", "o", "*", "|", "...", "-", "-", "-"), strict=True))
SPINNER, ASCII_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
NOTICE_SIGNS = {"info": ("dot", "accent"), "warning": ("dot", "warn"), "error": ("failed", "bad"), "faint": ("dot", "")}


class Painter:
    """Paints blocks. `colours` is a colour system of rich, or None; `ascii_only` is for terminals without Unicode."""

    def __init__(self, colours: str | None, ascii_only: bool = False, show_thinking: bool = False) -> None:
        self._colours = colours
        self._console: Console | None = None
        self._markdown: MarkdownLines | None = None
        self._live_layout: MarkdownLines | None = None
        self._live: tuple[str, int, str] | None = None
        self._show_thinking = show_thinking
        self.signs = ASCII_SIGNS if ascii_only else SIGNS
        self.spinner = ASCII_SPINNER if ascii_only else SPINNER

    @property
    def shows_thinking(self) -> bool:
        return self._show_thinking

    def toggle_thinking(self) -> None:
        self._show_thinking = not self._show_thinking

    def paint(self, block: Block, width: int) -> str:
        """The terminated lines of a finished block and a blank one, with escape sequences if there are colours."""
        lines = self._render_block(block, max(width, NARROWEST))
        filled = [number for number, line in enumerate(lines) if line.plain.strip()]
        return self.render_lines(lines[filled[0] : filled[-1] + 1]) + "\n" if filled else ""

    def paint_live_markdown(self, text: str, width: int) -> str:
        """Paint a part of an answer that may still change; unchanged text is reused as it was painted."""
        if self._live is None or self._live[:2] != (text, width):
            from pigeon.frontends.terminal.content.markdown import MarkdownLines

            if self._live_layout is None:
                self._live_layout = MarkdownLines(self.signs, self._colours is not None, at_once=True)
            lines = self._live_layout.render_lines(clean_text(text), max(width, NARROWEST))
            self._live = (text, width, self.render_lines(lines))
        return self._live[2]

    def paint_live_card(self, card: ToolCard, now: float, width: int) -> str:
        """Paint a running call with the last lines of its output."""
        details = ToolDetails(subject_of(card, self._cut_sign))
        details.lines = tail_of_output(card.output, LIVE_LINES)[0]
        width = max(width, NARROWEST)
        lines = [self._title_line(card, details, now - card.started, width), *self._body_lines(details, width)]
        return self.render_lines(lines)

    def paint_agent(self, row: AgentRow, now: float, width: int) -> str:
        """Paint an agent that works, in one line, and in a second one what it does now."""
        from pigeon.frontends.terminal.content.wrapping import join_texts, shorten_line

        width = max(width, NARROWEST)
        margin = "  " * min(row.indent, DEEPEST)
        time = "" if row.waits else duration_text(now - row.began, tenths=True)
        calls = format_count(row.tool_count, "call") if row.tool_count else ""
        used = describe_use(row.tokens, row.cost)
        facts = self._make_text("")
        for parts in ((calls, used, time), (used, time), (f"${row.cost:.3f}" if row.cost else "", time), (time,)):
            text = WAITS if row.waits else ", ".join(part for part in parts if part)
            facts = self._make_text(f"  {text}" if text else "", "faint")
            if facts.cell_len <= width // 2:
                break
        sign = "dot" if row.waits else "running"
        name = join_texts(
            self._make_text(f"{margin}{self.signs[sign]} ", "" if row.waits else "warn"),
            self._make_text(clean_text(row.type), "tool"),
            self._make_text(" "),
        )
        room = max(8, width - name.cell_len - facts.cell_len)
        title = shorten_line(self._make_text(first_words(row.title)), room, self._cut_sign)
        lines = [shorten_line(join_texts(name, title, facts), width, self._cut_sign)]
        if row.activity:
            lines.append(
                join_texts(self._make_text(margin), self._output_line(row.activity, width - len(margin), "faint"))
            )
        return self.render_lines(lines)

    def paint_faint(self, text: str, width: int) -> str:
        from pigeon.frontends.terminal.content.wrapping import wrap_words

        return self.render_lines(wrap_words(self._make_text(clean_text(text), "faint"), max(width, NARROWEST)))

    def paint_faint_line(self, text: str, width: int) -> str:
        """The beginning of a faint text in one line, without its end of line."""
        from pigeon.frontends.terminal.content.wrapping import shorten_line

        return self.render_lines(
            [shorten_line(self._make_text(clean_text(text), "faint"), width, self._cut_sign)]
        ).removesuffix("\n")

    def render_lines(self, lines: Iterable[Text]) -> str:
        """The lines as one text, each ended by a newline."""
        made: list[str] = []
        for line in lines:
            line.rstrip()
            if self._colours is None:
                made += (line.plain, "\n")
            else:
                made.append(self._render_coloured(line))
        return "".join(made)

    def _render_coloured(self, line: Text) -> str:
        """A line with its escape sequences: rich's console does the same but takes five times as long."""
        from rich.color import ColorSystem

        system = {"256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}.get(
            self._colours or "", ColorSystem.STANDARD
        )
        console = self._ensure_console()
        if not line.spans:
            # Such a line is rendered without the style of the whole line.
            return console.get_style(line.style).render(line.plain, color_system=system) + "\n"
        return "".join(
            part.style.render(part.text, color_system=system) if part.style else part.text
            for part in line.render(console, "\n")
        )

    def render_unshortened(self, text: str, width: int, is_diff: bool) -> list[Text]:
        """A text with nothing hidden: long lines are folded, and an endless one notes what is left out."""
        from rich.text import Text

        from pigeon.frontends.terminal.content.wrapping import fold_lines

        made: list[Text] = []
        lines = clean_text(text).rstrip().split("\n")
        for number, line in enumerate(lines):
            if len(made) > LONGEST_WHOLE:
                return [*made, self._left_out_line(len(lines) - number, "more", width)]
            style = {"+": "added", "-": "removed"}.get(line[:1], "") if is_diff else ""
            made += fold_lines(Text().append(line, style), max(width, NARROWEST))
        return made

    @property
    def _cut_sign(self) -> str:
        return self.signs["cut"]

    def _ensure_console(self) -> Console:
        from rich.console import Console
        from rich.theme import Theme

        if self._console is None:
            # Only used to look up styles; nothing is written to it.
            self._console = Console(file=StringIO(), width=NARROWEST, theme=Theme(STYLES))
        return self._console

    def _make_text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(text, style)

    def _render_markdown(self, text: str, width: int) -> list[Text]:
        from pigeon.frontends.terminal.content.markdown import MarkdownLines

        if self._markdown is None:
            self._markdown = MarkdownLines(self.signs, self._colours is not None)
        return self._markdown.render_lines(clean_text(text), width)

    @singledispatchmethod
    def _render_block(self, block: Block, width: int) -> list[Text]:
        raise TypeError(f"no way to paint {block!r}")

    @_render_block.register(UserText)
    def _user_lines(self, block: UserText, width: int) -> list[Text]:
        lines = self._wrap_behind_sign(self.signs["user"], "user", block.text, "said", width)
        if block.images:
            lines.append(self._make_text(f"  [{format_count(block.images, 'image')}]", "faint"))
        return lines

    @_render_block.register(AnswerText)
    def _answer_lines(self, block: AnswerText, width: int) -> list[Text]:
        return self._render_markdown(block.text, width)

    @_render_block.register(ThinkingText)
    def _thinking_lines(self, block: ThinkingText, width: int) -> list[Text]:
        from pigeon.frontends.terminal.content.wrapping import shorten_line

        time = "" if block.seconds is None or block.seconds < 1 else f" for {duration_text(block.seconds, tenths=True)}"
        title = f"{self.signs['thought']} Thought{time}"
        if self._show_thinking:
            return [self._make_text(title, "faint"), *self._wrap_behind_sign(" ", "", block.text, "faint", width)]
        words = " ".join(clean_text(block.text[:LONGEST_LINE]).split())
        return [shorten_line(self._make_text(f"{title}: {words}" if words else title, "faint"), width, self._cut_sign)]

    @_render_block.register(ToolCard)
    def _call_lines(self, block: ToolCard, width: int) -> list[Text]:
        details = details_of(block, self._cut_sign)
        return [self._title_line(block, details, block.seconds or 0.0, width), *self._body_lines(details, width)]

    @_render_block.register(ShellCard)
    def _shell_lines(self, block: ShellCard, width: int) -> list[Text]:
        from pigeon.frontends.terminal.content.wrapping import join_texts, shorten_line

        facts = self._make_text("")
        if block.exit_code:
            facts.append(f"  exit code {block.exit_code}", "bad")
        if not block.for_model:
            facts.append("  only for you", "faint")
        about = self._make_text(first_line(block.command, self._cut_sign), "tool")
        title = join_texts(
            self._make_text("! ", "accent"),
            shorten_line(about, max(8, width - 2 - facts.cell_len), self._cut_sign),
            facts,
        )
        lines, before = tail_of_output(block.output, SHELL_LINES)
        return [
            shorten_line(title, width, self._cut_sign),
            *self._body_lines(ToolDetails("", lines=lines, before=before), width),
        ]

    @_render_block.register(BackgroundOutput)
    def _job_lines(self, block: BackgroundOutput, width: int) -> list[Text]:
        from pigeon.frontends.terminal.content.wrapping import join_texts, shorten_line

        state = self._make_text(f"  {block.state}", "faint")
        about = self._make_text(first_words(block.title), "tool")
        title = join_texts(
            self._make_text(f"{self.signs['dot']} ", "accent"),
            shorten_line(about, max(8, width - 2 - state.cell_len), self._cut_sign),
            state,
        )
        lines, before = tail_of_output(block.output, SHELL_LINES)
        return [
            shorten_line(title, width, self._cut_sign),
            *self._body_lines(ToolDetails("", lines=lines or ["(no output)"], before=before), width),
        ]

    @_render_block.register(Notice)
    def _notice_lines(self, block: Notice, width: int) -> list[Text]:
        sign, style = NOTICE_SIGNS[block.kind]
        # Yellow text cannot be read on a light background; a sign can.
        text_style = {"error": "bad", "faint": "faint"}.get(block.kind, "")
        return self._wrap_behind_sign(self.signs[sign], style or "faint", block.text, text_style, width)

    @_render_block.register(ChatHead)
    def _head_lines(self, block: ChatHead, width: int) -> list[Text]:
        from pigeon.frontends.terminal.content.wrapping import join_texts, wrap_words

        # Model and folder are in the footer.
        hints = [line for hint in block.hints for line in wrap_words(self._make_text(clean_text(hint), "faint"), width)]
        return [join_texts(self._make_text("Pigeon", "user"), self._make_text(f" {block.version}", "faint")), *hints]

    def _title_line(self, card: ToolCard, details: ToolDetails, seconds: float, width: int) -> Text:
        from pigeon.frontends.terminal.content.wrapping import join_texts, shorten_line

        state, style = (
            ("running", "warn") if card.is_running else ("failed", "bad") if card.failed else ("done", "good")
        )
        facts = self._make_text("")
        if details.added or details.removed:
            facts.append(f"  +{details.added}", "added").append(f" -{details.removed}", "removed")
        if details.reason:
            facts.append(f"  {details.reason}", "bad")
        if details.note:
            # What comes last in a note matters most.
            note = details.note
            while len(note) > width // 2 and ", " in note:
                note = note.partition(", ")[2]
            facts.append(f"  {note}", "faint")
        if seconds >= LEAST_TIME or card.is_running:
            facts.append(f"  {duration_text(seconds, tenths=True)}", "faint")
        name = join_texts(
            self._make_text(f"{self.signs[state]} ", style), self._make_text(clean_text(card.name), "tool")
        )
        if details.about:
            room = max(8, width - name.cell_len - facts.cell_len - 1)
            name = join_texts(
                name, self._make_text(" "), shorten_line(self._make_text(details.about), room, self._cut_sign)
            )
        return shorten_line(join_texts(name, facts), width, self._cut_sign)

    def _body_lines(self, details: ToolDetails, width: int) -> list[Text]:
        lines = [self._left_out_line(details.before, "earlier", width)] if details.before else []
        lines += [self._diff_line(line, width) for line in details.diff]
        digits = len(str((details.first_number or 0) + len(details.lines)))
        for number, line in enumerate(details.lines, details.first_number or 0):
            before = "" if details.first_number is None else f"{number:>{digits}} "
            lines += (
                self._reason_lines(line, width) if details.failed else [self._output_line(line, width, before=before)]
            )
        return [*lines, self._left_out_line(details.after, "more", width)] if details.after else lines

    def _reason_lines(self, line: str, width: int) -> list[Text]:
        from pigeon.frontends.terminal.content.wrapping import indent_lines, wrap_words

        bar = self._make_text(f"  {self.signs['bar']} ", "faint")
        return indent_lines(wrap_words(self._make_text(line[:LONGEST_REASON]), width - bar.cell_len), bar, bar)

    def _diff_line(self, line: str, width: int) -> Text:
        return self._output_line(line, width, {"+": "added", "-": "removed"}.get(line[:1], "faint"))

    def _left_out_line(self, count: int, which: str, width: int) -> Text:
        return self._output_line(f"{self._cut_sign} {count:,} {which} line{'' if count == 1 else 's'}", width, "faint")

    def _output_line(self, line: str, width: int, style: str = "", before: str = "") -> Text:
        from pigeon.frontends.terminal.content.wrapping import join_texts, shorten_line

        start = self._make_text(f"  {self.signs['bar']} {before}", "faint")
        return join_texts(
            start, shorten_line(self._make_text(line[:LONGEST_LINE], style), width - start.cell_len, self._cut_sign)
        )

    def _wrap_behind_sign(self, sign: str, sign_style: str, text: str, style: str, width: int) -> list[Text]:
        """Wrap behind a sign, which only the first line has."""
        from pigeon.frontends.terminal.content.wrapping import indent_lines, wrap_words

        lines = wrap_words(self._make_text(clean_text(text).strip(), style), width - 2)
        return indent_lines(lines, self._make_text(f"{sign} ", sign_style))
