"""The chat in the terminal with a conversation of `pigeon serve`."""

from __future__ import annotations

from pathlib import Path

from support.pigeon_serve import shared_server
from support.terminal import PtyChat


def test_two_terminals_share_one_conversation(tmp_path: Path) -> None:
    server = shared_server()
    url = f"unix:{server.socket}?session={server.new('demo', tmp_path)}"
    with PtyChat(tmp_path, ["--connect", url]) as chat:
        chat.until("context")
        chat.send_line("run echo one-$((1+1))")
        chat.until("one-2")
        with PtyChat(tmp_path, ["--connect", url]) as other:
            other.until("one-2")
            other.until("context")
            other.send_line("run echo three-$((2+2))")
            other.until("three-4")
            chat.until("three-4")


def test_a_conversation_is_begun_in_this_folder(tmp_path: Path) -> None:
    with PtyChat(tmp_path, ["--connect", f"unix:{shared_server().socket}", "--model", "demo"]) as chat:
        chat.until("context")
        chat.send_line("run pwd")
        chat.until(str(tmp_path.name))


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with PtyChat(tmp_path, ["--connect", "ws://127.0.0.1:1/some-id"]) as chat:
        assert chat.wait_for_exit() == 1
        assert "127.0.0.1:1" in chat.text
