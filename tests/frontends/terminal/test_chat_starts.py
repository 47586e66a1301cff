"""How a chat starts: with what it is given, and without what it lacks; and how it sounds without drawing."""

from __future__ import annotations

import re
from pathlib import Path

from support.terminal import CTRL_C, CTRL_D, LOOKS, PIXEL, Look, PtyChat, call, scripted_model_arguments

EDITS = [{"oldText": "alpha", "newText": "beta"}]
WORDS = {"text": "word " * 20000, "chunkDelayMs": 20}


def test_a_conversation_is_gone_on_with_and_its_copy_survives_its_agent(tmp_path: Path) -> None:
    arguments = scripted_model_arguments(tmp_path)
    with PtyChat(tmp_path, [*arguments, "the first prompt"]) as chat:
        chat.until("You said: the first prompt")
        chat.until("context")
    with PtyChat(tmp_path, [*arguments, "--continue"]) as chat:
        chat.until("You said: the first prompt")
        chat.until("context")
        chat.send_line("more")
        chat.until("You said: more")
        chat.until("context")
    (original,) = tmp_path.rglob("*.jsonl")
    before = original.read_bytes()
    # An agent that dies is started again in the copy, and makes no other one.
    with PtyChat(tmp_path, [*arguments, "--fork", str(original)]) as chat:
        chat.until("You said: more")
        chat.until("context")
        chat.send_line("of the copy")
        chat.until("You said: of the copy")
        chat.kill_agents()
        chat.until("The agent has ended by signal 9.")
        chat.send_line("and again")
        chat.until("You said: and again")
        chat.until("context")
    assert original.read_bytes() == before
    (copy,) = set(tmp_path.rglob("*.jsonl")) - {original}
    assert "You said: and again" in copy.read_text()


def test_a_line_that_is_typed_ahead_is_sent_and_several_lines_wait(tmp_path: Path) -> None:
    with PtyChat(tmp_path, scripted_model_arguments(tmp_path), typed="fly h\x7fhome\r") as chat:
        chat.until("You said: fly home")
    with PtyChat(tmp_path, scripted_model_arguments(tmp_path), typed="one\rtwo\r") as chat:
        chat.until("context")
        assert "You said" not in chat.text
        chat.type("\r")
        chat.until("You said: one two")


def test_a_start_that_fails_says_why_and_leaves_a_clean_terminal(tmp_path: Path) -> None:
    with PtyChat(tmp_path, ["--model", "no-such/model"]) as chat:
        assert chat.wait_for_exit() == 1
        assert chat.text.startswith('Error: Model "no-such/model" not found.')
        assert chat.raw.rindex(b"\x1b[?2004l") > chat.raw.rindex(b"\x1b[?2004h")


def test_a_key_and_warnings_reach_the_chat_but_no_list_of_processes(tmp_path: Path) -> None:
    (tmp_path / "home" / ".pigeon" / "agent").mkdir(parents=True)
    (tmp_path / "home" / ".pigeon" / "agent" / "settings.json").write_text("{ broken")
    key = tmp_path / "key"
    key.write_text("sk-from-a-file\n")
    with PtyChat(tmp_path, [*scripted_model_arguments(tmp_path), "--api-key-file", "key"]) as chat:
        chat.reads("settings.json")
        chat.send_line("hello")
        chat.until("You said: hello")
        (agent,) = chat.agents()
        words = Path(f"/proc/{agent}/cmdline").read_text()
        assert "--api-key-file\0-\0" in words
        assert "sk-from" not in words


@LOOKS
def test_everything_is_said_in_words_where_nothing_is_drawn(tmp_path: Path, look: Look) -> None:
    (tmp_path / "notes.txt").write_text("alpha\n")
    (tmp_path / "dot.png").write_bytes(PIXEL)
    arguments = scripted_model_arguments(
        tmp_path,
        ("code", {"thinking": "Hm.", "text": "```python\nx = 1\n```\n\n**strong** words"}),
        ("change", [call("edit", path="notes.txt", edits=EDITS), "It is changed."]),
        ("slow", WORDS),
    )
    arguments += ["--approval-mode", "always-ask", *(["--plain"] if look.colours else [])]
    with look.open(tmp_path, arguments, env={} if look.colours else {"TERM": "dumb"}) as chat:
        chat.reads("Type a message and press Enter.")
        _talk(chat)
        _use_commands(chat)
        chat.type("slow\n")
        chat.reads("You said with 1 image: slow")
        chat.type("and then\n")
        chat.reads("Your message is queued until the agent's next break.")
        chat.type(CTRL_C)
        chat.reads("Stopped")
        chat.reads("Not sent to the agent: and then")
        chat.type("/quit\n")
        assert chat.wait_for_exit() == 0
        assert b"\x1b" not in chat.raw
    assert (tmp_path / "notes.txt").read_text() == "beta\n"


def _talk(chat: PtyChat) -> None:
    chat.type("code\n")
    chat.reads("Code, python: x = 1 End of code. strong words")
    chat.type("change\n")
    chat.reads("Question: Allow edit notes.txt? Removed line 1: alpha Added line 1: beta")
    chat.reads("Type /1 to /3 and press Enter")
    chat.type("/1\n")
    chat.reads("Tool edit: notes.txt, done")
    chat.reads("It is changed.")


def _use_commands(chat: PtyChat) -> None:
    chat.type("/image dot.png\n")
    chat.reads("1 image for the next message")
    chat.type("!echo $((40+2))\n")
    chat.reads("Command echo $((40+2)), done")
    chat.type("/model\n")
    chat.reads("Which model?")
    chat.type("\n")
    chat.type("/modle\n")
    chat.reads("did you mean /model?")
    chat.type("/help\n")
    chat.reads("runs a command for you and the model")


def test_nothing_is_cleared_from_the_first_cell_on_so_that_tmux_keeps_no_copy_of_the_input(tmp_path: Path) -> None:
    with PtyChat(tmp_path, scripted_model_arguments(tmp_path)) as chat:
        chat.until("context 0%")
        chat.send_line("hello")
        chat.until("You said: hello")
        assert chat.raw.count(b"\x1b[J") == chat.raw.count(b"\x1b[B\x1b[J") > 0
        assert b"\x1b[0J" not in chat.raw


def test_every_drawing_is_one_update_so_that_no_half_of_it_is_seen(tmp_path: Path) -> None:
    with PtyChat(tmp_path, scripted_model_arguments(tmp_path)) as chat:
        chat.until("context 0%")
        chat.send_line("hello")
        chat.until("You said: hello")
        chat.send_line("/tree")
        chat.until("Go to which point?")
        chat.type(CTRL_C, CTRL_D)
        assert chat.wait_for_exit() == 0
    between = re.sub(rb"\x1b\[\?2026h.*?\x1b\[\?2026l", b"", chat.raw, flags=re.DOTALL)
    assert (b"\x1b[?2026h" in chat.raw, between) == (True, b"")
