"""What keys do in the chat. The table of `docs/terminal.md` is this module in words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, completion_is_selected, has_completions
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindingsBase

    from pigeon.terminal.inputs import InputKind
    from pigeon.terminal.screen.screen import Screen

# Keys that are handed to the conversation as they are.
HANDED_ON: dict[str, InputKind] = {
    "s-tab": "cycle_thinking",
    "c-v": "paste_image",
    "c-o": "show_output",
}


def chat_keys(screen: Screen) -> KeyBindingsBase:
    """The keys of the input and of the conversation."""
    parts = (_writing_keys, _fetching_keys, _stopping_keys, _other_keys)
    return merge_key_bindings([part(screen) for part in parts])


def _writing_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.active)

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
            screen.accept("send")

    @keys.add("c-j", filter=writing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("escape", "enter", filter=writing)
    def _(event: KeyPressEvent) -> None:
        if screen.working:
            screen.accept("queue")
        else:
            event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.line.complete()

    @keys.add(Keys.BracketedPaste, filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.paste(event.data)

    return keys


def _fetching_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.active)

    @keys.add("escape", "up", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.give("take_back")

    @keys.add("c-r", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.start(asyncio.ensure_future(screen.search_history()))

    @keys.add("c-g", filter=writing)
    @keys.add("c-x", "c-e", filter=writing)
    def _(event: KeyPressEvent) -> None:
        screen.start(asyncio.ensure_future(screen.edit_outside()))

    return keys


def _stopping_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.active)
    working = Condition(lambda: screen.working)
    empty = Condition(lambda: not screen.line.text)

    @keys.add("escape", filter=writing & has_completions)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.cancel_completion()

    @keys.add("escape", filter=writing & working & ~has_completions)
    def _(event: KeyPressEvent) -> None:
        screen.give("stop")

    @keys.add("c-c", filter=writing)
    def _(event: KeyPressEvent) -> None:
        if screen.line.text:
            screen.line.clear()
        elif screen.working:
            screen.give("stop")
        else:
            screen.interrupt()

    @keys.add("c-d", filter=writing & empty)
    def _(event: KeyPressEvent) -> None:
        screen.leave()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def _other_keys(screen: Screen) -> KeyBindings:
    keys = KeyBindings()
    writing = Condition(lambda: not screen.panel.active)
    empty = Condition(lambda: not screen.line.text)

    def hand_on(kind: InputKind) -> None:
        screen.give(kind)

    for key, kind in HANDED_ON.items():
        keys.add(key, filter=writing)(lambda event, kind=kind: hand_on(kind))

    @keys.add("c-p", filter=writing & empty)
    def _(event: KeyPressEvent) -> None:
        screen.give("cycle_model")

    @keys.add("c-l")
    def _(event: KeyPressEvent) -> None:
        screen.clear()

    @keys.add("c-t")
    def _(event: KeyPressEvent) -> None:
        screen.toggle_thinking()

    return keys
