"""The chat in the terminal with a conversation of `pigeon serve`."""

from __future__ import annotations

import os
from pathlib import Path

from support.pigeon_serve import shared_server
from support.terminal import ESC, PtyChat, call, scripted_model_arguments


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


def test_who_joins_a_conversation_sees_what_is_at_work_and_can_stop_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    waits = {"text": "I build.", **call("bash", command=f"echo begun; read line < {tmp_path}/pipe; echo over")}
    agent = call("task", prompt="CHILD", title="Build it")
    scripted_model_arguments(
        tmp_path,
        ("ROOT", [agent, call("bash", command="echo waiting; sleep 600"), "Never said."]),
        ("CHILD", [waits, "It is built."]),
    )
    server = shared_server()
    body = {"cwd": str(tmp_path), "model": f"scripted/{tmp_path}/s.json", "agents": True}
    made = server.call("POST", "/api/sessions", body)["id"]
    options = ["--connect", f"unix:{server.socket}?session={made}"]
    with PtyChat(tmp_path, options) as first:
        first.footer("s.json")
        first.send_line("ROOT")
        first.until("begun")
        with PtyChat(tmp_path, options) as second:
            second.until(lambda _: any("general Build it" in line for line in second.lines))
            (tmp_path / "pipe").write_text("go\n")
            second.reads("It is built.")
            second.until("waiting")
            second.type(ESC)
            second.reads("Stopped")
        first.reads("Stopped")
