"""The chat in a real pseudo-terminal, narrow without colours and wide with them: what the agent does, and what the
person decides meanwhile."""

from __future__ import annotations

import json
import os
from pathlib import Path

from support.terminal import (
    ALT_ENTER,
    ALT_UP,
    CTRL_C,
    CTRL_D,
    CTRL_O,
    CTRL_T,
    DOWN,
    ENTER,
    ESC,
    LOOKS,
    PIXEL,
    SIGN,
    UP,
    Look,
    PtyChat,
    call,
    scripted_model_arguments,
)

WORDS = {"text": "word " * 20000, "chunkDelayMs": 20}
ANSWER = "# Birds\n\nThey **fly**.\n\n```python\ndef fly():\n    return 1\n```\n\n- one\n- two\n"
COMMAND = "echo first; cat go; seq 20; echo last"
LONG_COMMAND = "\n".join(f"echo line{number}" for number in range(40)) + " " + "x" * 900 + "END"


@LOOKS
def test_answers_stream_with_thoughts_folded_and_tools_as_cards(tmp_path: Path, look: Look) -> None:
    (tmp_path / "notes.txt").write_text("alpha\n")
    os.mkfifo(tmp_path / "go")
    edits = [{"oldText": "alpha", "newText": "beta"}]
    arguments = scripted_model_arguments(
        tmp_path,
        ("birds", {"thinking": "Birds, then.", "text": ANSWER, "chunk": 3}),
        ("command", [call("bash", command=COMMAND), "That is done."]),
        ("change", [call("edit", path="notes.txt", edits=edits), "That is done."]),
        ("cut", {"text": "Once upon", "stop": "length"}),
    )
    with look.open(tmp_path, arguments) as chat:
        chat.until("s.json")
        chat.send_line("birds")
        text = chat.until("two")
        assert f"{SIGN} birds" in text
        assert "Thought" in text
        assert "Birds, then." not in "\n".join(line for line in text.splitlines() if "Thought" not in line)
        assert "def fly():" in text
        assert "**" not in text
        chat.type(CTRL_T)
        chat.send_line("birds again")
        chat.until(lambda text: "Birds, then." in text.partition("birds again")[2])

        chat.send_line("command")
        chat.until("Running")
        chat.until("│ first")
        (tmp_path / "go").write_text("went\n")
        text = chat.until("That is done.")
        assert " s" in next(line for line in text.splitlines() if "bash" in line)
        chat.type(CTRL_O)
        chat.until("last")

        chat.send_line("change")
        chat.until(lambda text: text.count("That is done.") == 2)
        text = chat.until("beta")
        assert "alpha" in text
        chat.send_line("cut")
        text = chat.reads("The answer was cut off")
        assert all(len(line) <= look.columns for line in text.splitlines())
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0
        assert f"{SIGN}  " not in chat.lines[-1]
        look.fits(chat)
    assert (tmp_path / "notes.txt").read_text() == "beta\n"


@LOOKS
def test_messages_for_a_busy_agent_wait_and_can_be_taken_back(tmp_path: Path, look: Look) -> None:
    (tmp_path / "dot.png").write_bytes(PIXEL)
    with look.open(tmp_path, scripted_model_arguments(tmp_path, ("slow", WORDS))) as chat:
        chat.until("s.json")
        chat.send_line("slow")
        chat.until("word word")
        chat.send_line("and faster")
        chat.until("Next: and faster")
        # An image that is taken back with its message is attached to the next one.
        chat.send_line("/image dot.png")
        chat.until("1 image")
        chat.type("then rest", ALT_ENTER)
        chat.until("Next: then rest")
        chat.type(ALT_UP)
        chat.has_input("then rest")
        chat.wait_until_gone("Next: then rest")
        chat.until(lambda text: text.count("1 image") == 2)
        chat.type(ENTER)
        chat.until("Next: then rest")
        chat.type(ESC)
        chat.until("Stopped")
        # What was meant for the work that ended is not said to the next one.
        chat.until(f"{SIGN} and faster")
        chat.until(lambda text: text.count("1 image") == 3)
        chat.type(CTRL_C)
        chat.wait_until_gone("and faster")
        chat.send_line("what now")
        assert "and faster" not in chat.until("You said: what now").partition("Stopped")[2]

        chat.send_line("slow again")
        chat.until(lambda text: "word word" in text.partition("slow again")[2])
        chat.send_line("turn left")
        chat.until("Next: turn left")
        chat.type(CTRL_C)
        chat.until(lambda text: text.count("Stopped") == 2)
        chat.type(CTRL_C)
        chat.wait_until_gone("turn left")
        chat.type(CTRL_C)
        chat.until("again to leave")
        chat.type(CTRL_C)
        assert chat.wait_for_exit() == 0
        look.fits(chat)
    (session,) = tmp_path.rglob("*.jsonl")
    messages = [json.loads(line).get("message", {}) for line in session.read_text().splitlines()]
    said = [str(message["content"]) for message in messages if message.get("role") == "user"]
    assert ["image" in text for text in said if "what now" in text] == [True]


@LOOKS
def test_a_permission_is_asked_with_the_change_and_answered_by_a_key(tmp_path: Path, look: Look) -> None:
    names = ("one", "two", "three", "four")
    rules = [(name, [call("write", path=name, content=f"in {name}\n"), f"Done, {name}."] * 2) for name in names]
    rules.append(("long", [call("bash", command=LONG_COMMAND), "Done, long."]))
    arguments = scripted_model_arguments(tmp_path, *rules)
    with look.open(tmp_path, [*arguments, "--approval-mode", "always-ask"]) as chat:
        chat.until("s.json")
        for name, key, verdict in (("one", UP + ENTER, False), ("two", ESC, False), ("three", ENTER, True)):
            chat.send_line(name)
            text = chat.until("Yes, for this session")
            assert f"in {name}" in text
            chat.type(key)
            chat.until(f"Done, {name}.")
            assert (tmp_path / name).exists() == verdict

        # What is being written stays in the input.
        chat.type(f"four{ENTER}say it")
        chat.until("Yes, for this session")
        chat.has_input("say it")
        chat.empty()
        assert not (tmp_path / "four").exists()
        chat.answers(DOWN + ENTER, "Yes, for this session")
        chat.until("Done, four.")
        # What is allowed for the session is not asked about again.
        chat.send_line("four")
        chat.until(lambda text: text.count("Done, four.") == 2)

        # A command that does not fit above the choices stands in the conversation, to its last line.
        chat.send_line("long")
        chat.reads("see above for all of it")
        text = chat.reads("echo line39")
        assert "echo line0" in text
        assert "xEND" in text.replace("\n", "")
        chat.answers(ESC, "Yes, for this session")
        chat.until("Done, long.")
        look.fits(chat)
    assert (tmp_path / "four").exists()


def test_what_is_written_at_a_question_is_read_with_the_refusal(tmp_path: Path) -> None:
    arguments = scripted_model_arguments(tmp_path, ("go", [call("write", path="made", content="x"), "Over."]))
    with PtyChat(tmp_path, [*arguments, "--approval-mode", "always-ask"]) as chat:
        chat.until("s.json")
        chat.send_line("go")
        chat.until("Yes, for this session")
        for key in "wait, no: y a n 1 2 3":
            chat.type(key)
        chat.has_input("wait, no: y a n 1 2 3")
        chat.until("Enter to decline and send this instead")
        chat.type(ENTER)
        chat.until("You said: wait, no: y a n 1 2 3")
        assert "Yes, for this session" not in "\n".join(chat.lines)
    assert not (tmp_path / "made").exists()
    (session,) = tmp_path.rglob("*.jsonl")
    entries = [json.loads(line) for line in session.read_text().splitlines()]
    said = [entry["message"]["role"] for entry in entries if entry["type"] == "message"]
    # Nothing was asked of the model between the refusal and the words.
    assert said[1:] == ["user", "assistant", "toolResult", "user", "assistant"]


def test_the_letters_of_a_message_trust_no_folder(tmp_path: Path) -> None:
    (tmp_path / ".pigeon").mkdir()
    (tmp_path / ".pigeon" / "settings.json").write_text("{}")
    with PtyChat(tmp_path, scripted_model_arguments(tmp_path)) as chat:
        chat.until(f"{SIGN} No")
        for key in "hello, yes":
            chat.type(key)
        chat.has_input("hello, yes")
        chat.type(ENTER)
        chat.until("You said: hello, yes")
        chat.send_line("/trust")
        chat.answers(ENTER, "Do you trust")
        chat.send_line("/trust")
        chat.answers(ESC, "Do you trust")
    assert not list(tmp_path.rglob("trust.json"))


def test_a_message_without_a_model_comes_back_with_what_to_do(tmp_path: Path) -> None:
    with PtyChat(tmp_path, []) as chat:
        assert "no model" not in chat.until("starting")
        chat.answers(DOWN + ENTER, "Try the demo model")
        chat.send_line("list the files")
        chat.until("Try the demo model")
        chat.has_input("list the files")
        assert "set_model" not in chat.text
        chat.empty()
        chat.answers(ENTER, "Try the demo model")
        chat.reads('Try "list the files"')


@LOOKS
def test_without_a_key_the_demo_is_offered(tmp_path: Path, look: Look) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with look.open(tmp_path, []) as chat:
        chat.reads("Set a provider's key, for example ANTHROPIC_API_KEY")
        chat.until("Try the demo model")
        chat.type(ENTER)
        chat.reads('Try "list the files"')
        chat.send_line("list the files")
        chat.until("● bash ls -A .")
        chat.until("notes.txt")
        look.fits(chat)
