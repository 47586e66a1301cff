"""`/undo`, `/redo` and `/changes` in a real pseudo-terminal and as plain lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.terminal import ENTER, ESC, PtyChat, call, scripted_model_arguments

COMMAND = "printf 'two\\n' > a.txt; rm b.txt; printf 'c\\n' > c.txt"


def _arguments(folder: Path) -> list[str]:
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("bee\n")
    return scripted_model_arguments(folder, ("change", [call("bash", command=COMMAND), "All changed."]))


def _read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("?.txt"))}


@pytest.mark.parametrize("key", [ENTER, "y"], ids=["enter", "y"])
def test_undo_shows_what_it_would_do_asks_once_and_names_what_it_left_alone(tmp_path: Path, key: str) -> None:
    with PtyChat(tmp_path, _arguments(tmp_path)) as chat:
        chat.send_line("/undo")
        chat.until("nothing to undo")
        chat.send_line("change it")
        chat.until("All changed.")
        (tmp_path / "c.txt").write_text("a person's\n")
        chat.send_line("/undo")
        chat.until("Undo “change it”")
        chat.until("Yes, bring them back")
        assert _read(tmp_path) == {"a.txt": "two\n", "c.txt": "a person's\n"}
        chat.type(key)
        chat.until("Restored: a.txt, b.txt")
        chat.until("Left alone: c.txt (changed by someone else)")
        assert _read(tmp_path) == {"a.txt": "one\n", "b.txt": "bee\n", "c.txt": "a person's\n"}
        chat.send_line("/redo")
        chat.until(lambda text: text.count("Restored: a.txt, b.txt") == 2)
        assert _read(tmp_path) == {"a.txt": "two\n", "c.txt": "a person's\n"}
        chat.send_line("/changes")
        chat.until("b.txt  +0 -1")


def test_an_undo_that_is_declined_changes_nothing(tmp_path: Path) -> None:
    with PtyChat(tmp_path, _arguments(tmp_path)) as chat:
        chat.send_line("change it")
        chat.until("All changed.")
        chat.send_line("/undo")
        chat.until("Yes, bring them back")
        chat.type(ESC)
        chat.wait_until_gone("Yes, bring them back")
        assert _read(tmp_path) == {"a.txt": "two\n", "c.txt": "c\n"}
