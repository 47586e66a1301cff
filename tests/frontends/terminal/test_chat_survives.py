"""The chat when things around it go wrong: terminals that shrink, stop or go away, agents that die, hostile texts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.processes import eventually, is_alive
from support.terminal import (
    CTRL_C,
    CTRL_D,
    CTRL_Z,
    DOWN,
    ESC,
    LOOKS,
    SIGN,
    Look,
    PtyChat,
    call,
    paste_keys,
    scripted_model_arguments,
)

WORDS = {"text": "word " * 20000, "chunkDelayMs": 20}
# Colours, a title, a wiped screen, an eight-bit sequence, a device control string, and a line written over.
HOSTILE = "\x1b[31mred\x1b]0;owned\x07\x1b[2J\x9b31m\x1bPq#0\x1b\\ good\rbad"
# Marks that turn the direction in which letters are read.
TURNING = ("\u202e", "\u2066", "\u200f")
FORBIDDEN = (b"\x1b]0;owned", b"\x1b[2J", b"\x1b[31mred", b"\x9b31m", b"\xc2\x9b", b"\x1bP")


def test_a_resized_and_a_tiny_terminal_keep_working(tmp_path: Path) -> None:
    with PtyChat(tmp_path, scripted_model_arguments(tmp_path, ("slow", WORDS))) as chat:
        chat.until("scripted/s.json")
        chat.send_line("slow")
        chat.until("word word")
        for columns, rows in ((40, 20), (200, 50), (10, 5), (60, 12), (80, 30)):
            chat.resize(columns, rows)
            chat.type("x")
            chat.has_input("x")
            chat.type("\x7f")
            chat.has_input("")
        chat.type(ESC)
        chat.until("Stopped")
        # The row that is chosen is seen, however few rows there are.
        chat.resize(20, 5)
        chat.send_line("/thinking")
        chat.until(lambda _: any("medium" in line for line in chat.lines))
        chat.type(DOWN)
        chat.until(lambda _: any(line.startswith(SIGN) and "high" in line for line in chat.lines))
        chat.type(ESC)
        chat.has_input("")
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0


@LOOKS
def test_ctrl_z_gives_the_shell_its_terminal_and_fg_goes_on(tmp_path: Path, look: Look) -> None:
    arguments = scripted_model_arguments(tmp_path)
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with look.open(tmp_path, (), program=shell, env={"PS1": "shell> "}) as chat:
        chat.until("shell>")
        chat.type(f"{sys.executable} -m pigeon {' '.join(arguments)}; stty -a\n")
        chat.until("Esc stops")
        chat.footer("0%")
        chat.type("half a")
        chat.until(f"{SIGN} half a")
        chat.type(CTRL_Z)
        chat.until("Stopped")
        chat.wait_until_gone("s.json medium")
        chat.type("echo still-$((1+1))\n")
        chat.until("still-2")
        chat.type("fg\n")
        chat.until(f"{SIGN} half a")
        chat.type(" sentence\r")
        chat.until("You said: half a sentence")
        chat.type(CTRL_D)
        # The terminal is as it was.
        text = chat.until("speed")
        assert " icanon" in chat.until("icanon").replace("\n", " ")
        assert " -echo " not in text
        chat.type("exit\n")


@LOOKS
@pytest.mark.parametrize(("how", "code"), [("hang up", 129), ("terminate", 143)])
def test_a_chat_that_must_go_leaves_a_whole_session_and_no_process(
    tmp_path: Path, look: Look, how: str, code: int
) -> None:
    with look.open(tmp_path, scripted_model_arguments(tmp_path, ("slow", WORDS))) as chat:
        chat.until("s.json")
        chat.send_line("slow")
        chat.until("word word")
        agents = chat.agents()
        assert agents
        if how == "hang up":
            chat.hang_up()
            assert chat.process.wait(20) == code
        else:
            chat.process.terminate()
            assert chat.wait_for_exit() == code
        assert eventually(lambda: not any(is_alive(pid) for pid in agents))
    (session,) = tmp_path.rglob("*.jsonl")
    entries = [json.loads(line) for line in session.read_text().splitlines()]
    last = entries[-1]["message"]
    assert last["stopReason"] == "aborted"
    assert "word word" in last["content"][0]["text"]


def test_an_agent_that_is_killed_is_started_again_with_its_conversation(tmp_path: Path) -> None:
    rules = (("slow", WORDS), ("write", [call("write", path="file", content="x"), "Done."]))
    with PtyChat(tmp_path, [*scripted_model_arguments(tmp_path, *rules), "--approval-mode", "always-ask"]) as chat:
        chat.until("scripted/s.json")
        chat.send_line("remember this")
        chat.until("You said: remember this")
        # A question goes with the agent that asked it.
        chat.send_line("write")
        chat.until("Yes, for this session")
        chat.kill_agents()
        chat.until("The agent has ended by signal 9.")
        chat.wait_until_gone("Yes, for this session")
        chat.send_line("slow")
        chat.until("word word")
        # What waited for it comes back.
        chat.send_line("wait")
        chat.until("Next: wait")
        chat.kill_agents()
        chat.until(lambda text: text.count("The agent has ended by signal 9.") == 2)
        chat.has_input("wait")
        chat.empty()
        chat.send_line("and now")
        chat.until("You said: and now")
        chat.send_line("/tree")
        chat.until("Go to which point?")
        screen = "\n".join(chat.lines)
        assert "you: remember this" in screen
        assert "you: and now" in screen
        assert any("you are here" in line and line.startswith(SIGN) for line in chat.lines)
        chat.type(ESC)
        chat.wait_until_gone("Go to which point?")
    assert not (tmp_path / "file").exists()


@LOOKS
def test_nothing_that_others_wrote_steers_the_terminal(tmp_path: Path, look: Look) -> None:
    _hostile_session(tmp_path)
    bad_name = "evil\x1b]0;owned\x07.txt"
    (tmp_path / bad_name).write_text("x")
    hostile_json = json.dumps(HOSTILE)
    arguments = scripted_model_arguments(
        tmp_path,
        ("talk", {"thinking": HOSTILE, "text": f"{HOSTILE}\n\n```\n{HOSTILE}\n```\n\ntalk ends"}),
        ("tool", [call("bash", command=f"printf '%b' {hostile_json!r}; ls"), "tool ends"]),
        name=HOSTILE,
    )
    with look.open(tmp_path, arguments) as chat:
        chat.until("s.json")
        chat.send_line("talk")
        chat.until("talk ends")
        chat.send_line("tool")
        chat.until("tool ends")
        chat.type("@evil")
        chat.until("evil")
        chat.type(CTRL_C)
        chat.wait_until_gone("@evil")
        chat.send_line("/model")
        chat.answers(ESC, "Which model?")
        chat.type(paste_keys(HOSTILE))
        chat.until("good")
        chat.type("\r")
        chat.until("You said:")
        chat.send_line("/tree")
        chat.answers(ESC, "Go to which point?")
        # A conversation whose name and words are hostile, in the list, in the footer and on the screen.
        chat.send_line("/resume")
        chat.reads("named")
        chat.answers("\r", "Continue which conversation?")
        chat.until("old words")
        chat.footer("s.json" if look.columns < 60 else "named")
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0
        for sequence in FORBIDDEN:
            assert sequence not in chat.raw.replace(b"\x1b[2J\x1b[0;0H", b"")
        for mark in TURNING:
            assert mark.encode() not in chat.raw


def _hostile_session(folder: Path) -> None:
    """A session on disk that another program wrote."""
    named = f"{HOSTILE}{''.join(TURNING)} named"
    with PtyChat(folder, [*scripted_model_arguments(folder), "old words"]) as chat:
        chat.until("You said: old words")
        chat.until("context")
        # Only then the agent writes nothing more to the file.
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0
    (session,) = folder.rglob("*.jsonl")
    lines = session.read_text().splitlines()
    last = json.loads(lines[-1])
    info = {"type": "session_info", "id": "0badcafe", "parentId": last["id"], "timestamp": last["timestamp"]}
    lines = [line.replace("You said: old", json.dumps(HOSTILE + "".join(TURNING))[1:-1]) for line in lines]
    session.write_text("\n".join([*lines, json.dumps({**info, "name": named}), ""]))
