"""The chat in a real pseudo-terminal: what a person says, sees and decides."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from fakes.pty_chat import (
    ALT_ENTER,
    ALT_UP,
    CTRL_C,
    CTRL_D,
    CTRL_O,
    CTRL_T,
    ENTER,
    ESC,
    SIGN,
    PtyChat,
    call,
    scripted,
)

SIZES = pytest.mark.parametrize(("columns", "rows"), [(40, 20), (200, 50)])
WORDS = {"text": "word " * 400, "chunkDelayMs": 20}
ANSWER = "# Birds\n\nThey **fly**.\n\n```python\ndef fly():\n    return 1\n```\n\n- one\n- two\n"
COMMAND = "echo first; cat go; seq 20; echo last"


@SIZES
def test_answers_stream_with_thoughts_folded_and_tools_as_cards(tmp_path: Path, columns: int, rows: int) -> None:
    (tmp_path / "notes.txt").write_text("alpha\n")
    os.mkfifo(tmp_path / "go")
    edits = [{"oldText": "alpha", "newText": "beta"}]
    arguments = scripted(
        tmp_path,
        ("birds", {"thinking": "Birds, then.", "text": ANSWER, "chunk": 3}),
        ("command", [call("bash", command=COMMAND), "That is done."]),
        ("change", [call("edit", path="notes.txt", edits=edits), "That is done."]),
    )
    with PtyChat(tmp_path, arguments, columns, rows) as chat:
        chat.until("scripted/s.json")
        chat.say("birds")
        text = chat.until("two")
        assert f"{SIGN} birds" in text
        assert "Thought" in text
        assert "Birds, then." not in "\n".join(line for line in text.splitlines() if "Thought" not in line)
        assert "def fly():" in text
        assert "**" not in text
        chat.type(CTRL_T)
        chat.say("birds again")
        chat.until(lambda text: "Birds, then." in text.partition("birds again")[2])

        chat.say("command")
        chat.until("Running")
        chat.until("│ first")
        (tmp_path / "go").write_text("went\n")
        text = chat.until("That is done.")
        assert "bash" in text
        assert "first" in text
        assert " s" in next(line for line in text.splitlines() if "bash" in line)
        chat.type(CTRL_O)
        chat.until("last")

        chat.say("change")
        chat.until(lambda text: text.count("That is done.") == 2)
        text = chat.until("beta")
        assert "alpha" in text
        assert all(len(line) <= columns for line in text.splitlines())
        chat.type(CTRL_D)
        assert chat.ended() == 0
        assert f"{SIGN}  " not in chat.lines[-1]
    assert (tmp_path / "notes.txt").read_text() == "beta\n"


@SIZES
def test_messages_for_a_busy_agent_wait_and_can_be_taken_back(tmp_path: Path, columns: int, rows: int) -> None:
    with PtyChat(tmp_path, scripted(tmp_path, ("slow", WORDS)), columns, rows) as chat:
        chat.until("scripted/s.json")
        chat.say("slow")
        chat.until("word word")
        chat.say("and faster")
        chat.until("Next: and faster")
        chat.type("then rest", ALT_ENTER)
        chat.until("Next: then rest")
        chat.type(ALT_UP)
        chat.until(f"{SIGN} then rest")
        chat.gone("Next: then rest")
        chat.type(ESC)
        chat.until("Stopped")
        # What was meant for the work that ended is not said to the next one.
        chat.until(f"{SIGN} and faster")
        chat.type(CTRL_C)
        chat.gone("and faster")
        chat.say("what now")
        assert "and faster" not in chat.until("You said: what now").partition("Stopped")[2]

        chat.say("slow again")
        chat.until(lambda text: "word word" in text.partition("slow again")[2])
        chat.say("turn left")
        chat.until("Next: turn left")
        chat.type(CTRL_C)
        chat.until(lambda text: text.count("Stopped") == 2)
        chat.type(CTRL_C)
        chat.gone("turn left")
        chat.type(CTRL_C)
        chat.until("again to leave")
        chat.type(CTRL_C)
        assert chat.ended() == 0


def test_a_permission_is_asked_with_the_change_and_answered_by_a_key(tmp_path: Path) -> None:
    names = ("one", "two", "three", "four", "five")
    rules = [(name, [call("write", path=name, content=f"in {name}\n"), f"Done, {name}."]) for name in names]
    arguments = scripted(tmp_path, *rules)
    with PtyChat(tmp_path, [*arguments, "--approval-mode", "always-ask"]) as chat:
        chat.until("scripted/s.json")
        for name, key, verdict in (("one", "n", False), ("two", ESC, False), ("three", "y", True)):
            chat.say(name)
            text = chat.until("Yes, for this session")
            assert f"in {name}" in text
            chat.type(key)
            chat.until(f"Done, {name}.")
            assert (tmp_path / name).exists() == verdict

        # The letters of a message that is being written are no answer.
        chat.type(f"four{ENTER}say it")
        chat.until(f"{SIGN} say it")
        chat.until("Yes, for this session")
        assert not (tmp_path / "four").exists()
        chat.type("a")
        chat.until("Done, four.")
        chat.until(f"{SIGN} say it")
        chat.type(CTRL_C)
        chat.gone("say it")
        chat.say("five")
        chat.until("Yes, for this session")
        # While the question waits, the agent dies: the question goes with it.
        for pid in chat.agents():
            os.kill(pid, signal.SIGKILL)
        chat.until("The agent has ended by signal 9.")
        chat.gone("Yes, for this session")
        chat.say("are you there")
        chat.until("You said: are you there")
    assert (tmp_path / "four").exists()
    assert not (tmp_path / "five").exists()


def test_without_a_key_the_demo_is_offered(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with PtyChat(tmp_path, []) as chat:
        chat.until("Try the demo model")
        chat.type("d")
        chat.until('Try "list the files"')
        chat.type("list the files", ENTER)
        chat.until("● bash ls -A .")
        chat.until("notes.txt")


def test_shell_commands_run_for_both_or_for_the_person_alone(tmp_path: Path) -> None:
    with PtyChat(tmp_path, scripted(tmp_path)) as chat:
        chat.until("scripted/s.json")
        chat.say("!echo both-$((1+1))")
        chat.until("both-2")
        chat.say("!!echo alone-$((1+1))")
        chat.until("alone-2")
        chat.until("only for you")
        chat.say("!echo before; sleep 600")
        chat.until("Running")
        chat.type(ESC)
        chat.until("Stopped")
        chat.gone("Running")
        chat.say("go on")
        chat.until("You said: go on")


def test_nothing_is_allowed_unseen(tmp_path: Path) -> None:
    """A command that does not fit above the choices stands in the conversation, to its last line."""
    lines = [f"echo line{number}" for number in range(40)]
    reply = {"toolCalls": [{"name": "bash", "arguments": {"command": "\n".join(lines) + " " + "x" * 900 + "END"}}]}
    (tmp_path / "script.json").write_text(json.dumps({"replies": [reply], "default": "done"}))
    with PtyChat(tmp_path, ["--model", "scripted/script.json", "--approval-mode", "always-ask"], rows=24) as chat:
        chat.until("scripted/")
        chat.type("go", ENTER)
        text = chat.until("all of it stands above")
        assert "echo line0" in text
        assert "echo line39" in text
        assert "xEND" in text.replace("\n", "")
