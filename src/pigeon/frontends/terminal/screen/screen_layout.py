"""The layout of the lower part of the screen: live rows, widgets, the question or the input, the footer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu

from pigeon.frontends.terminal.footer import FooterFacts, footer_text
from pigeon.frontends.terminal.screen.input_line import InputLine
from pigeon.frontends.terminal.screen.live_rows import LiveRows
from pigeon.frontends.terminal.screen.question_panel import QuestionPanel
from pigeon.frontends.terminal.widgets import Widgets

if TYPE_CHECKING:
    from prompt_toolkit.layout.containers import AnyContainer

INPUT_ROWS = 12
MENU_ROWS = 8


class ScreenLayout:
    """The parts from top to bottom. `signs` are those of the painter."""

    def __init__(
        self,
        line: InputLine,
        panel: QuestionPanel,
        facts: FooterFacts,
        widgets: Widgets,
        signs: dict[str, str],
        width: Callable[[], int],
        is_roomy: Filter,
    ) -> None:
        self._line = line
        self._panel = panel
        self._facts = facts
        self._widgets = widgets
        self._signs = signs
        self._width = width
        self._is_roomy = is_roomy

    def make_container(self, rows: LiveRows) -> AnyContainer:
        """The whole lower part, with these rows as the live part."""
        asking = Condition(lambda: self._panel.is_active)
        writing = Condition(lambda: not self._panel.has_focus)
        rule = Window(height=1, char=self._signs["rule"], style="class:rule")
        return HSplit(
            [
                # An empty live part takes no row: a block already ends with a blank line.
                ConditionalContainer(
                    rows,
                    filter=Condition(lambda: rows.has_lines),
                ),
                self._widget_window("aboveEditor"),
                ConditionalContainer(self._panel.make_container(), filter=asking),
                ConditionalContainer(rule, filter=writing),
                ConditionalContainer(
                    Window(
                        BufferControl(self._line.buffer),
                        height=Dimension(min=1, max=INPUT_ROWS),
                        wrap_lines=True,
                        dont_extend_height=True,
                        get_line_prefix=self._line_prefix,
                    ),
                    filter=writing,
                ),
                ConditionalContainer(rule, filter=writing),
                ConditionalContainer(CompletionsMenu(max_height=MENU_ROWS, scroll_offset=1), filter=writing),
                self._widget_window("belowEditor"),
                ConditionalContainer(
                    Window(
                        FormattedTextControl(self._footer_text), height=1, style="class:footer", always_hide_cursor=True
                    ),
                    filter=self._is_roomy,
                ),
            ]
        )

    def _widget_window(self, placement: str) -> AnyContainer:
        def render_widget_lines() -> StyleAndTextTuples:
            return [("", "\n".join(self._widgets.lines(placement)))]

        control = FormattedTextControl(render_widget_lines)
        shown = Condition(lambda: bool(self._widgets.lines(placement)))
        return ConditionalContainer(Window(control, wrap_lines=True, dont_extend_height=True), filter=shown)

    def _line_prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        first = line == 0 and wrapped == 0
        return [("class:prompt", f"{self._signs['user']} " if first else "  ")]

    def _footer_text(self) -> StyleAndTextTuples:
        return [("", footer_text(self._facts, self._width()))]
