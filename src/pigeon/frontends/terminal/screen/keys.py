"""The keys of the chat. The table in `docs/terminal.md` describes this module."""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, completion_is_selected, has_completions
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys

from pigeon.frontends.terminal.screen.question_panel import LIST_ROWS

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindingsBase

    from pigeon.frontends.terminal.inputs import InputKind
    from pigeon.frontends.terminal.screen.screen import Screen

# Keys that are passed on to the conversation unchanged.
HANDED_ON: dict[str, InputKind] = {
    "s-tab": "cycle_thinking",
    "c-v": "paste_image",
    "c-o": "show_output",
}
# More than a terminal buffers for a program that does not read.
MOST_AHEAD = 1024 * 1024


def read_typed_ahead(terminal: int) -> list[KeyPress]:
    """The keys that were pressed before there was a screen.

    Until the program has the terminal, Enter arrives as a newline, and pasted text looks typed. So one line is sent, as
    a shell would do, and several lines count as pasted text that waits for Enter.
    """
    data = b""
    with suppress(OSError):
        while len(data) < MOST_AHEAD and select.select([terminal], [], [], 0)[0]:
            part = os.read(terminal, MOST_AHEAD)
            if not part:
                break
            data += part
    # The terminal marks a Ctrl-D that ended no line with a zero byte.
    text = data.decode("utf-8", "replace").replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    line = text.strip("\n")
    if "\n" in line:
        return [KeyPress(Keys.BracketedPaste, line)]
    keys: list[KeyPress] = []
    parser = Vt100Parser(keys.append)
    parser.feed(line + ("\r" if line and text.endswith("\n") else ""))
    parser.flush()
    return keys


def make_chat_keys(screen: Screen) -> KeyBindingsBase:
    """The keys of the input and of the conversation."""
    # Of several that fit, the last one is used.
    parts = (
        *(_make_writing_keys, _make_recall_and_edit_keys, _make_stopping_keys, _make_model_and_view_keys),
        _make_question_keys,
    )
    return merge_key_bindings([part(screen) for part in parts])


def _make_writing_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.has_focus)

    @keys.add("enter", filter=writing & completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        state = event.current_buffer.complete_state
        if state is not None and state.current_completion is not None:
            event.current_buffer.apply_completion(state.current_completion)

    @keys.add("enter", filter=writing & ~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            screen.press_enter(followed=bool(event.key_processor.input_queue))

    @keys.add("c-j", filter=writing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("escape", "enter", filter=writing)
    def _(event: KeyPressEvent) -> None:
        if screen.is_working:
            screen.submit_input("queue")
        else:
            event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.line.complete()

    @keys.add(Keys.BracketedPaste, filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.paste(event.data)

    return keys


def _make_recall_and_edit_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.has_focus)

    @keys.add("escape", "up", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.put_input("recall_queued")

    @keys.add("c-r", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.keep_task(asyncio.ensure_future(screen.search_history()))

    @keys.add("c-g", filter=writing)
    @keys.add("c-x", "c-e", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.keep_task(asyncio.ensure_future(screen.edit_in_editor()))

    return keys


def _make_stopping_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.has_focus)
    working = Condition(lambda: screen.is_working)
    empty = Condition(lambda: not screen.line.text)

    @keys.add("escape", filter=writing & has_completions)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cancel_completion()

    @keys.add("escape", filter=writing & working & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        screen.put_input("stop")

    @keys.add("c-c", filter=writing)
    def _(event: KeyPressEvent) -> None:
        if screen.line.text:
            screen.line.clear()
        elif screen.is_working:
            screen.put_input("stop")
        else:
            screen.on_interrupt()

    @keys.add("c-d", filter=writing & empty)
    def _(event: KeyPressEvent) -> None:
        screen.leave()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def _make_model_and_view_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.has_focus)
    empty = Condition(lambda: not screen.line.text)

    @keys.add("c-b", filter=writing & Condition(lambda: screen.has_running_command))
    def _(event: KeyPressEvent) -> None:
        screen.put_input("background")

    for key, kind in HANDED_ON.items():
        keys.add(key, filter=writing)(lambda event, kind=kind: screen.put_input(kind))

    @keys.add("c-p", filter=writing & empty)
    def _(event: KeyPressEvent) -> None:
        screen.put_input("cycle_model")

    @keys.add("c-l")
    def _(event: KeyPressEvent) -> None:
        screen.clear()

    @keys.add("c-t")
    def _(event: KeyPressEvent) -> None:
        screen.toggle_thinking()

    return keys


def _make_question_keys(screen: Screen) -> KeyBindings:
    """The keys of a question of the agent; none of them can be part of a sentence."""
    keys = KeyBindings()
    asking = Condition(lambda: screen.panel.is_active and not screen.panel.has_focus)
    choosing = Condition(lambda: screen.panel.has_choices and not screen.line.text)
    empty = Condition(lambda: not screen.line.text)

    for key, by in (("up", -1), ("s-tab", -1), ("down", 1), ("tab", 1)):
        keys.add(key, filter=choosing)(lambda event, by=by: screen.panel.move_selection(by))
    for key, by in (("pageup", -LIST_ROWS), ("pagedown", LIST_ROWS)):
        keys.add(key, filter=choosing)(lambda event, by=by: screen.panel.move_selection(by, wraps=False))

    @keys.add("escape", filter=asking & empty, eager=True)
    @keys.add("escape", filter=asking & ~has_completions)
    @keys.add("c-c", filter=asking & empty)
    @keys.add("c-d", filter=asking & empty)
    def _(event: KeyPressEvent) -> None:
        screen.panel.finish(None)

    return keys
