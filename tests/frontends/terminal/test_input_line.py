"""The line that a person writes in, and the file of what was written."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import Completion

from pigeon.frontends.terminal.screen.completion import ChatCompleter
from pigeon.frontends.terminal.screen.input_history import KEPT, LONGEST, InputHistory
from pigeon.frontends.terminal.screen.input_line import PASTED_CHARACTERS, PAUSE_SECONDS, InputLine
from pigeon.system.project_files import ProjectFiles

NOWHERE = "/dev/null/history"


def line(clock: Callable[[], float] = lambda: 0.0) -> InputLine:
    return InputLine(
        ChatCompleter({}, ProjectFiles(lambda: NOWHERE, {}, NOWHERE), {}),
        InputHistory(NOWHERE),
        clock,
        lambda path: False,
    )


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.booleans())
def test_all_that_was_pasted_is_sent(pastes: list[str], long: bool) -> None:
    written = line()
    sent = ""
    for text in (paste + "x" * PASTED_CHARACTERS * long for paste in pastes):
        written.paste(text)
        sent += text.replace("\r\n", "\n").replace("\r", "\n")
        if long:
            assert len(written.text) < 60 * len(pastes)
    assert written.pop_text() == (sent if sent.strip() else "")


def test_words_that_look_like_a_fold_are_words() -> None:
    written = line()
    written.set_text("see [pasted 120 lines]")
    assert written.pop_text() == "see [pasted 120 lines]"
    assert written.pop_text() == ""


def test_what_comes_back_stands_before_what_is_being_written() -> None:
    written = line()
    written.set_text("new")
    written.prepend_text("old")
    assert written.text == "old\n\nnew"


def test_a_text_begins_with_its_first_letter_unless_it_follows_another_without_a_pause() -> None:
    now = 10.0
    written = line(lambda: now)
    written.set_text("fir")
    now = 20.0
    written.set_text("first")
    assert written.begun_at == 10.0
    assert written.pop_text() == "first"
    assert written.was_just_popped
    now += PAUSE_SECONDS / 2
    written.set_text("second")
    assert written.begun_at == 10.0
    assert written.pop_text() == "second"
    now += PAUSE_SECONDS
    assert not written.was_just_popped
    written.set_text("third")
    assert written.begun_at == now


def test_a_line_of_blanks_is_cleared_and_an_answer_is_no_history() -> None:
    written = line()
    written.set_text("  ")
    assert (written.pop_text(), written.text) == ("", "")
    written.set_text("secret")
    assert written.pop_text(remembers=False) == "secret"
    assert written.list_history(9) == []


@given(st.lists(st.text(min_size=1), max_size=20))
def test_what_was_written_is_read_again(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/deep/history"
        history = InputHistory(path)
        for text in texts:
            history.store_string(text)
        assert list(InputHistory(path).load_history_strings()) == texts[::-1]


def test_the_file_is_private_short_and_never_the_reason_for_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = InputHistory(str(path))
    history.store_string("x" * (LONGEST + 1))
    assert not path.exists()
    history.store_string("first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b'not json\n{"a": 1}\n\xff\n' + b'"row"\n' * (2 * KEPT + 1))
    assert len(list(history.load_history_strings())) == KEPT
    assert len(path.read_bytes().splitlines()) == KEPT
    assert list(InputHistory(NOWHERE).load_history_strings()) == []
    InputHistory(NOWHERE).store_string("lost")


async def test_tab_goes_to_the_next_of_several_completions_and_else_inserts_the_only_one() -> None:
    files = ProjectFiles(lambda: NOWHERE, {}, NOWHERE)
    names = {"model": "choose the model", "modes": "", "quit": "leave"}
    written = InputLine(ChatCompleter(names, files, {}), InputHistory(NOWHERE), lambda: 0.0, lambda path: False)
    written.set_text("/qu")
    # Typing has begun to look for completions, and has found none yet.
    written.buffer.complete_state = CompletionState(written.buffer.document, [])
    written.complete()
    assert written.text == "/quit "
    written.set_text("/mo")
    shown = [Completion("model ", -2), Completion("modes ", -2)]
    written.buffer.complete_state = CompletionState(written.buffer.document, shown)
    written.complete()
    assert written.text == "/model "
    written.complete()
    assert written.text == "/modes "
