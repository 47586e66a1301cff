"""The chat in a real pseudo-terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.pty_chat import ENTER, ESC, SIGN, TAB, PtyChat

SIZES = pytest.mark.parametrize(("columns", "rows"), [(40, 20), (200, 50)])


@SIZES
def test_a_prompt_is_answered_with_tools(tmp_path: Path, columns: int, rows: int) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with PtyChat(tmp_path, columns=columns, rows=rows) as chat:
        chat.until("demo/guide")
        chat.type("list the files", ENTER)
        text = chat.until("I see 2 entries")
        assert f"{SIGN} list the files" in text
        assert "● bash ls -A ." in text
        assert "│ notes.txt" in text
        chat.type("\x04")
        assert chat.ended() == 0


def test_a_permission_is_asked_with_the_change_and_answered_by_a_key(tmp_path: Path) -> None:
    with PtyChat(tmp_path, ["--model", "demo", "--approval-mode", "always-ask"]) as chat:
        chat.until("demo/guide")
        chat.type("write hello to notes.txt", ENTER)
        text = chat.until("Yes, for this session")
        assert "+1 hello" in text
        chat.type("y")
        chat.until("Done: I wrote notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "hello\n"


def test_esc_is_a_no(tmp_path: Path) -> None:
    with PtyChat(tmp_path, ["--model", "demo", "--approval-mode", "always-ask"]) as chat:
        chat.until("demo/guide")
        chat.type("write hello to notes.txt", ENTER)
        chat.until("Yes, for this session")
        chat.type(ESC)
        chat.until("✗ write")
    assert not (tmp_path / "notes.txt").exists()


def test_a_command_is_completed(tmp_path: Path) -> None:
    with PtyChat(tmp_path) as chat:
        chat.until("demo/guide")
        chat.type("/exp", TAB)
        chat.until(f"{SIGN} /export")


def test_a_misspelt_command_is_not_sent(tmp_path: Path) -> None:
    with PtyChat(tmp_path) as chat:
        chat.until("demo/guide")
        chat.type("/modle", ENTER)
        chat.until("did you mean /model?")


def test_without_a_key_the_demo_is_offered(tmp_path: Path) -> None:
    with PtyChat(tmp_path, []) as chat:
        chat.until("Try the demo model")
        chat.type("d")
        chat.until('Try "list the files"')
        chat.type("list the files", ENTER)
        chat.until("● bash ls -A .")
