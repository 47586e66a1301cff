"""The editor that a person writes a message in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pigeon.frontends.terminal import persons_editor
from pigeon.frontends.terminal.persons_editor import edit_file

PATH = "/usr/bin:/bin"


@pytest.fixture(autouse=True)
def no_other_editors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persons_editor, "EDITORS", ())


@pytest.fixture
def editor(tmp_path: Path) -> str:
    script = tmp_path / "an editor"
    script.write_text('#!/bin/sh\nprintf "%s" "$1" >> "$2"\n')
    script.chmod(0o755)
    return f"'{script}'"


@pytest.mark.parametrize("bad", ["'a quote that is not closed", "/nowhere/editor", "no-such-editor-anywhere", ""])
def test_an_editor_that_cannot_be_started_is_passed_over(tmp_path: Path, editor: str, bad: str) -> None:
    message = tmp_path / "message"
    assert edit_file(str(message), {"VISUAL": bad, "EDITOR": f"{editor} 'two words'", "PATH": PATH}, str(tmp_path))
    assert message.read_text() == "two words"


@pytest.mark.parametrize("editor", ["", "/nowhere/editor", "'", "false"])
def test_without_an_editor_that_works_nothing_was_written(tmp_path: Path, editor: str) -> None:
    assert not edit_file(str(tmp_path / "message"), {"EDITOR": editor, "PATH": PATH}, str(tmp_path))


def test_an_editor_that_fails_is_not_followed_by_another(tmp_path: Path, editor: str) -> None:
    message = tmp_path / "message"
    assert not edit_file(str(message), {"VISUAL": "false", "EDITOR": f"{editor} x", "PATH": PATH}, str(tmp_path))
    assert not message.exists()
