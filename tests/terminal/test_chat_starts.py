"""How a chat starts: with what it is given, and without what it lacks."""

from __future__ import annotations

from pathlib import Path

from fakes.pty_chat import CTRL_D, ENTER, PtyChat, scripted

EXTENSION = 'from pigeon.extensions import Extension\n\next = Extension("local", needs=[])\n'


def test_a_first_message_then_going_on_and_choosing_among_conversations(tmp_path: Path) -> None:
    arguments = scripted(tmp_path)
    with PtyChat(tmp_path, [*arguments, "the first prompt"]) as chat:
        chat.until("You said: the first prompt")
        chat.type(CTRL_D)
        assert chat.ended() == 0
    with PtyChat(tmp_path, [*arguments, "--continue"]) as chat:
        chat.until("You said: the first prompt")
        chat.until("context")
        chat.type("more", ENTER)
        chat.until("You said: more")
    with PtyChat(tmp_path, [*arguments, "--resume"]) as chat:
        chat.until("Go on with which conversation?")
        chat.type(ENTER)
        chat.until("You said: more")
    assert len(list(tmp_path.rglob("*.jsonl"))) <= 2


def test_a_start_that_fails_says_why_and_leaves_a_clean_terminal(tmp_path: Path) -> None:
    with PtyChat(tmp_path, ["--model", "no-such/model"]) as chat:
        assert chat.ended() == 1
        assert chat.text.startswith('Error: Model "no-such/model" not found.')
        assert chat.raw.rindex(b"\x1b[?2004l") > chat.raw.rindex(b"\x1b[?2004h")


def test_a_key_and_warnings_reach_the_chat_but_no_list_of_processes(tmp_path: Path) -> None:
    (tmp_path / "home" / ".pigeon" / "agent").mkdir(parents=True)
    (tmp_path / "home" / ".pigeon" / "agent" / "settings.json").write_text("{ broken")
    key = tmp_path / "key"
    key.write_text("sk-from-a-file\n")
    with PtyChat(tmp_path, [*scripted(tmp_path), "--api-key-file", "key"]) as chat:
        chat.until("settings.json")
        chat.type("hello", ENTER)
        chat.until("You said: hello")
        (agent,) = chat.agents()
        words = Path(f"/proc/{agent}/cmdline").read_text()
        assert "--api-key-file\0-\0" in words
        assert "sk-from" not in words


def test_what_a_folder_brings_is_used_only_if_the_person_trusts_it(tmp_path: Path) -> None:
    (tmp_path / ".pigeon" / "extensions").mkdir(parents=True)
    (tmp_path / ".pigeon" / "extensions" / "local.py").write_text(EXTENSION)
    with PtyChat(tmp_path, scripted(tmp_path)) as chat:
        chat.until("Do you trust")
        assert ".pigeon" in chat.text.replace("\n", "")
        chat.type("n")
        chat.gone("Do you trust")
        chat.type("hello", ENTER)
        chat.until("You said: hello")


def test_without_colours_and_in_plain_lines(tmp_path: Path) -> None:
    arguments = scripted(tmp_path, ("code", "```python\nx = 1\n```\n\n**strong** words"))
    with PtyChat(tmp_path, arguments, env={"NO_COLOR": "1"}) as chat:
        chat.until("scripted/s.json")
        chat.type("code", ENTER)
        chat.until("strong words")
        chat.type(CTRL_D)
        assert chat.ended() == 0
        for number in (*range(30, 38), *range(90, 98), 38):
            assert f"\x1b[{number}".encode() + b"m" not in chat.raw
            assert f"[0;{number}".encode() not in chat.raw
    with PtyChat(tmp_path, [*arguments, "--no-session"], env={"TERM": "dumb"}) as chat:
        chat.until("Esc" if "Esc" in chat.text else "scripted/s.json")
        chat.type("code\n")
        chat.until("strong words")
        chat.type("/model\n")
        chat.until("Which model?")
        chat.type("\n/quit\n")
        assert chat.ended() == 0
        assert b"\x1b" not in chat.raw
