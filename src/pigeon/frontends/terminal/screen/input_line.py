"""The line that a person writes in: its text, pasted text, completions and history.

A long pasted text is folded to a few words, which stand for it until the line is taken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.document import Document

from pigeon.frontends.terminal.screen.input_history import InputHistory

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completion

    from pigeon.frontends.terminal.screen.completion import ChatCompleter

PASTED_LINES = 12
PASTED_CHARACTERS = 1_500
# Without a key for this long, the person has paused.
PAUSE_SECONDS = 0.5
_FOLD = re.compile(r"\[pasted [\d,]+ (?:lines|characters)(?:, number \d+)?\]")


class _EditableText(Buffer):
    """The text of the line; `edit_file` opens it in an editor."""

    def __init__(self, edit_file: Callable[[str], bool], **choices: Any) -> None:
        super().__init__(**choices)
        self._edit_file = edit_file

    def _open_file_in_editor(self, filename: str) -> bool:
        """Replaces that of prompt_toolkit, whose editor sees our variables and is found in any folder."""
        return self._edit_file(filename)


class InputLine:
    """One input, of several rows if need be. `now` is a steady clock in seconds, `edit_file` opens a file in an
    editor."""

    def __init__(
        self,
        completer: ChatCompleter,
        history: InputHistory,
        now: Callable[[], float],
        edit_file: Callable[[str], bool],
    ) -> None:
        self._now = now
        self._history = history
        self._completer = completer
        self._completing: asyncio.Future[None] | None = None
        self._pastes: dict[str, str] = {}
        self._popped = self._begun = float("-inf")
        self._had_text = False
        self.buffer = _EditableText(
            edit_file,
            multiline=True,
            completer=completer,
            complete_while_typing=True,
            history=history,
            on_text_changed=self._remember_beginning,
        )

    @property
    def text(self) -> str:
        """The text, with pastes folded."""
        return self.buffer.text

    @property
    def was_just_popped(self) -> bool:
        """True if Enter was pressed only a moment ago: another one may be the same."""
        return self._now() - self._popped < PAUSE_SECONDS

    @property
    def begun_at(self) -> float:
        """When the text was begun, or the one before it if there was no pause between them."""
        return self._begun

    def set_text(self, text: str) -> None:
        self.buffer.set_document(Document(text, len(text)))

    def prepend_text(self, text: str) -> None:
        self.set_text("\n\n".join(part for part in (text, self.buffer.text) if part))

    def pop_text(self, remembers: bool = True) -> str:
        """The text with everything that was pasted, or an empty text if there are only blanks; empties the line.

        With `remembers`, it is added to the history.
        """
        self._popped = self._now()
        text = _FOLD.sub(lambda fold: self._pastes.get(fold[0], fold[0]), self.buffer.text)
        self.clear()
        if not text.strip():
            return ""
        if remembers and self._history.get_strings()[-1:] != [text]:
            self._history.append_string(text)
        return text

    def clear(self) -> None:
        self.buffer.reset()
        self._pastes.clear()
        self._had_text = False

    def paste(self, text: str) -> None:
        """Insert pasted text, or a few words that represent it."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.rstrip("\n").count("\n") + 1
        if lines > PASTED_LINES or len(text) > PASTED_CHARACTERS:
            text = self._fold_paste(text, f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters")
        self.buffer.insert_text(text, fire_event=False)

    def _fold_paste(self, text: str, size: str) -> str:
        fold, number = f"[pasted {size}]", 1
        while self._pastes.get(fold, text) != text:
            number += 1
            fold = f"[pasted {size}, number {number}]"
        self._pastes[fold] = text
        return fold

    def complete(self) -> None:
        """Insert the only completion, or go to the next of several.

        If finding them takes a moment, nothing is inserted if the line has changed by then.
        """
        # Not by a completion of the buffer: one that typing has begun would replace it.
        document, event = self.buffer.document, CompleteEvent(completion_requested=True)
        if self._completer.can_complete_instantly(document):
            self._write_completion(list(self._completer.get_completions(document, event)))
        else:
            self._completing = asyncio.ensure_future(self._complete_later(document, event))

    async def _complete_later(self, document: Document, event: CompleteEvent) -> None:
        found = [one async for one in self._completer.get_completions_async(document, event)]
        if self.buffer.document == document:
            self._write_completion(found)

    def _write_completion(self, found: list[Completion]) -> None:
        buffer = self.buffer
        if buffer.complete_state and buffer.complete_state.completions:
            buffer.complete_next()
        elif len(found) == 1:
            buffer.apply_completion(found[0])
        elif found:
            buffer.insert_text(get_common_complete_suffix(buffer.document, found))
            buffer.start_completion()

    def list_history(self, most: int) -> list[str]:
        """What was sent before, newest first, without repetitions."""
        return list(dict.fromkeys(reversed(self._history.get_strings())))[:most]

    def _remember_beginning(self, buffer: Buffer) -> None:
        has_text = bool(buffer.text)
        # Who goes on right after a message was sent has not looked up.
        if has_text and not self._had_text and not self.was_just_popped:
            self._begun = self._now()
        self._had_text = has_text
