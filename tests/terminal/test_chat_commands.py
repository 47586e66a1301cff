"""Slash commands, the input line and dialogs of extensions in a real pseudo-terminal."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.pty_chat import (
    CTRL_C,
    CTRL_D,
    CTRL_G,
    CTRL_J,
    CTRL_R,
    DOWN,
    ENTER,
    ESC,
    TAB,
    UP,
    PtyChat,
    pasted,
    scripted,
)

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)
DIALOGS = """
from pigeon.extensions import CommandContext, Extension

ext = Extension("dialogs", needs=["ui"])


@ext.command("ask", help="ask everything")
async def ask(args: str, ctx: CommandContext) -> None:
    ui = ctx.ui
    ui.set_status("dialogs", "status-shown")
    ui.set_widget("dialogs", ["widget-shown"])
    ui.set_title("title-shown")
    answers = [await ui.select("Which bird?", ["pigeon", "parrot"]), await ui.confirm("Fly south?", "It is cold.")]
    answers += [await ui.input("Name?", "of the bird"), await ui.editor("A letter", "Dear pigeon,")]
    ui.set_widget("dialogs")
    ui.notify(f"answers {answers}", "warning")
    ui.set_editor_text("text of the editor")
"""


def test_every_command_of_the_table_works(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PIXEL)
    with PtyChat(tmp_path, scripted(tmp_path), columns=100, rows=40) as chat:
        chat.until("context 0%")
        chat.say("/modle")
        chat.until("did you mean /model?")
        chat.has_input("/modle")
        chat.type(CTRL_C)
        chat.has_input("")
        chat.say("first words")
        chat.until("You said: first words")
        for command, shown in (
            ("/help", "/permissions"),
            ("/cost", "tokens"),
            ("/name a good name", "Named: a good name"),
            ("/copy", "Copied"),
            ("/image dot.png", "1 image"),
            ("/trust", "Nothing here needs trust"),
            ("/compact", "Nothing to compact"),
            ("/resume", "no other conversation"),
        ):
            chat.say(command)
            chat.until(shown)
        chat.say("/export page.html")
        chat.until("page.html")
        chat.say("look at it")
        chat.until("You said: look at it")
        for command, question in (
            ("/model", "Which model?"),
            ("/thinking", "How much shall the model think?"),
            ("/tree", "Go to which point?"),
            ("/permissions", "What may tools do"),
        ):
            chat.say(command)
            chat.until(question)
            chat.type(ESC)
            chat.gone(question)
        chat.say("/thinking low")
        chat.until("s.json low")
        chat.say("/fork")
        chat.until("before which message?")
        chat.type(DOWN, ENTER)
        chat.has_input("first words")
        chat.type(CTRL_C)
        chat.has_input("")
        chat.say("/new")
        chat.until("A new conversation")
        chat.say("/quit")
        assert chat.ended() == 0
    assert (tmp_path / "page.html").exists()
    sessions = "".join(path.read_text() for path in tmp_path.rglob("*.jsonl"))
    assert '"type":"image"' in sessions.replace(" ", "")


def test_the_input_line_completes_folds_searches_and_remembers(tmp_path: Path) -> None:
    arguments = _folder_with_editor(tmp_path)
    env = {"EDITOR": str(tmp_path / "editor.sh"), "VISUAL": ""}
    _write_in_many_ways(tmp_path, arguments, env)
    with PtyChat(tmp_path, [*arguments, "--continue"]) as chat:
        chat.until("You said: from the editor")
        chat.until("context")
        chat.type(UP)
        chat.has_input("what is on @dot.png")
        chat.type(CTRL_C)
        chat.has_input("")
        chat.type(CTRL_R)
        chat.until("Which of what you wrote?")
        chat.type("editor", ENTER)
        chat.has_input("from the editor")


def _folder_with_editor(tmp_path: Path) -> list[str]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep-notes.txt").write_text("x")
    (tmp_path / "dot.png").write_bytes(PIXEL)
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nprintf 'from the editor' > \"$1\"\n")
    editor.chmod(0o755)
    return scripted(tmp_path)


def _write_in_many_ways(tmp_path: Path, arguments: list[str], env: dict[str, str]) -> None:
    with PtyChat(tmp_path, arguments, env=env) as chat:
        chat.until("context 0%")
        chat.type("/exp", TAB)
        chat.has_input("/export")
        chat.type(CTRL_C)
        chat.has_input("")
        chat.type("see @deep", TAB)
        chat.until("see @sub/deep-notes.txt")
        chat.type(CTRL_J, "second row", ENTER)
        chat.until("second row")
        chat.until("You said: see")

        chat.type(pasted("one\r\ntwo"))
        chat.until("two")
        chat.type(ENTER)
        chat.until("You said: one")
        log = "".join(f"line {number}\n" for number in range(120))
        chat.type("read ", pasted(log), " end")
        chat.until("read [pasted 120 lines] end")
        chat.type(ENTER)
        chat.until("line 119 end")

        chat.type("draft", CTRL_G)
        chat.has_input("from the editor")
        chat.type(ENTER)
        chat.until("You said: from the editor")

        chat.type(pasted(str(tmp_path / "dot.png")))
        chat.until("1 image")
        chat.say("what is on @dot.png")
        chat.until("2 images")
        chat.type(CTRL_D)
        assert chat.ended() == 0


def test_a_megabyte_that_is_pasted_is_folded_and_sent_whole(tmp_path: Path) -> None:
    arguments = scripted(tmp_path, ("x", "It came."))
    with PtyChat(tmp_path, arguments) as chat:
        chat.until("context 0%")
        chat.type(pasted(("x" * 99 + "\n") * 10_486), " end")
        chat.until("[pasted 10,486 lines] end")
        chat.type(ENTER)
        text = chat.until("It came.")
        assert "more lines" in text
    (session,) = tmp_path.rglob("*.jsonl")
    entries = [json.loads(line) for line in session.read_text().splitlines()]
    (said,) = [entry["message"] for entry in entries if entry.get("message", {}).get("role") == "user"]
    assert len(json.dumps(said)) > 1_048_600


def test_dialogs_widgets_and_notices_of_extensions(tmp_path: Path) -> None:
    (tmp_path / "dialogs.py").write_text(DIALOGS)
    with PtyChat(tmp_path, [*scripted(tmp_path), "--extension", "dialogs.py"], columns=200) as chat:
        chat.until("context 0%")
        chat.type("/as", TAB, ENTER)
        chat.until("Which bird?")
        chat.until("widget-shown")
        chat.until("status-shown")
        assert b"title-shown" in chat.raw
        chat.type("2")
        chat.until("Fly south?")
        assert "It is cold." in "\n".join(chat.lines)
        chat.type("y")
        chat.until("of the bird")
        chat.type("Pia", ENTER)
        chat.until("Dear pigeon,")
        chat.type(CTRL_J, "coo", ENTER)
        chat.until("answers ['parrot', True, 'Pia', 'Dear pigeon,\\ncoo']")
        chat.gone("widget-shown")
        chat.has_input("text of the editor")
