"""Slash commands, the input line and dialogs of extensions in a real pseudo-terminal, narrow and wide."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from support.sdk_agents import scripted_server
from support.terminal import (
    CTRL_D,
    CTRL_G,
    CTRL_J,
    CTRL_P,
    CTRL_R,
    CTRL_V,
    DOWN,
    ENTER,
    ESC,
    LOOKS,
    PIXEL,
    SHIFT_TAB,
    SIGN,
    TAB,
    UP,
    Look,
    PtyChat,
    paste_keys,
    scripted_model_arguments,
)

DIALOGS = """
from pigeon.extensions import CommandContext, Extension

ext = Extension("dialogs", needs=["ui"])


@ext.command("ask", help="ask everything")
async def ask(args: str, ctx: CommandContext) -> None:
    ui = ctx.ui
    ui.set_status("dialogs", "status")
    ui.set_widget("dialogs", ["widget-shown"])
    ui.set_title("title-shown")
    answers = [await ui.select("Which bird?", ["pigeon", "parrot"]), await ui.confirm("Fly south?", "It is cold.")]
    answers += [await ui.input("Name?", "of the bird"), await ui.editor("A letter", "Dear pigeon,")]
    ui.set_widget("dialogs")
    ui.notify(f"answers {answers}", "warning")
    ui.set_editor_text("text of the editor")
"""
MODELS: dict[str, Any] = {
    "providers": {
        "own": {
            "baseUrl": "http://127.0.0.1:9",
            "apiKey": "dummy",
            "api": "anthropic-messages",
            "models": [{"id": name, "reasoning": True} for name in ("m-one", "m-two")],
        }
    }
}


def _folder(tmp_path: Path) -> list[str]:
    """A folder with a repository, files, a picture, a skill and a template; an editor and a clipboard; two models."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/twig\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep-notes.txt").write_text("x")
    (tmp_path / "dot.png").write_bytes(PIXEL)
    agent = tmp_path / "home" / ".pigeon" / "agent"
    (agent / "prompts").mkdir(parents=True)
    (agent / "prompts" / "greet.md").write_text("Greet the $1 politely")
    (agent / "skills" / "nesting").mkdir(parents=True)
    (agent / "skills" / "nesting" / "SKILL.md").write_text("---\nname: nesting\ndescription: how to nest\n---\nTwigs.")
    (agent / "models.json").write_text(json.dumps(MODELS))
    programs = _programs(tmp_path)
    programs.mkdir()
    for name, script in (
        ("editor", "printf 'from the editor' > \"$1\""),
        ("wl-paste", f"cat '{tmp_path}/dot.png'"),
        ("wl-copy", "cat > /dev/null"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return scripted_model_arguments(tmp_path, cost={"input": 900, "output": 900})


def _programs(tmp_path: Path) -> Path:
    """Outside of the working folder, where the chat takes no program for the clipboard from."""
    return tmp_path.with_name(f"{tmp_path.name}-programs")


def _environment(tmp_path: Path) -> dict[str, str]:
    return {
        "EDITOR": str(_programs(tmp_path) / "editor"),
        "VISUAL": "",
        "PATH": f"{_programs(tmp_path)}:{os.environ['PATH']}",
    }


@LOOKS
def test_every_command_of_the_table_works(tmp_path: Path, look: Look) -> None:
    arguments = _folder(tmp_path)
    with look.open(tmp_path, [*arguments, "first words"], env=_environment(tmp_path)) as chat:
        chat.until("You said: first words")
        chat.footer("%")
        chat.send_line("/modle")
        chat.reads("did you mean /model?")
        chat.has_input("/modle")
        chat.empty()
        _simple_commands(chat)
        _questions(chat)
        _other_points(chat)
        _footer(chat, look)
        chat.send_line("/quit")
        assert chat.wait_for_exit() == 0
        look.fits(chat)
    assert (tmp_path / "page.html").exists()


def _simple_commands(chat: PtyChat) -> None:
    for command, shown in (
        ("/help", "runs a command for you and the model"),
        ("/cost", "1 message of yours"),
        ("/name a good name", "Named: a good name"),
        ("/copy", "Copied"),
        ("/trust", "Nothing here needs trust"),
        ("/compact", "Nothing to compact"),
        ("/resume", "no other conversation"),
        ("/export page.html", "page.html"),
        ("/greet owl", "You said: Greet the owl politely"),
        ("/skill:nesting", "Twigs."),
    ):
        chat.send_line(command)
        chat.reads(shown)


def _questions(chat: PtyChat) -> None:
    chat.send_line("/model")
    chat.answers("m-two" + ENTER, "Which model?")
    chat.footer("m-two")
    chat.send_line("/model s.json")
    chat.footer("s.json")
    chat.send_line("/thinking")
    chat.answers(DOWN + ENTER, "Which thinking level?")
    chat.footer("s.json high")
    chat.send_line("/thinking low")
    chat.footer("s.json low")
    chat.send_line("/permissions")
    chat.answers(UP + ENTER, "What may tools do")
    chat.send_line("/permissions")
    chat.until(lambda _: any("Ask before every" in line for line in chat.lines))
    chat.reads("Ask before every tool that no rule allows  now")
    chat.answers(DOWN + ENTER, "What may tools do")


def _other_points(chat: PtyChat) -> None:
    """Another point of the tree, a copy before a message, a new conversation, and back to the first one."""
    chat.send_line("/tree")
    chat.answers("first" + ENTER, "Go to which point?")
    chat.has_input("first words")
    chat.type(ENTER)
    chat.until(f"{SIGN} first words")
    chat.until("You said: first words")
    chat.send_line("other words")
    chat.until("You said: other words")
    chat.send_line("/fork")
    chat.answers("other" + ENTER, "before which message?")
    chat.has_input("other words")
    chat.empty()
    chat.send_line("/new")
    chat.until("A new conversation")
    chat.send_line("/resume")
    chat.answers("good name" + ENTER, "Continue which conversation?")
    chat.until("You said: other words")


def _footer(chat: PtyChat, look: Look) -> None:
    chat.type(SHIFT_TAB)
    chat.footer("medium")
    chat.type(CTRL_P)
    chat.footer("own/m-" if look.columns > 60 else "m-")
    for word in ("m-one", "%") if look.columns < 60 else ("context", "%", "$", "/test_every", "(twig)", "a good name"):
        chat.footer(word)


@LOOKS
def test_the_input_line_completes_folds_searches_and_remembers(tmp_path: Path, look: Look) -> None:
    arguments = _folder(tmp_path)
    with look.open(tmp_path, arguments, env=_environment(tmp_path)) as chat:
        chat.footer("%")
        _complete(chat)
        _write_in_many_ways(chat)
        _attach(chat, tmp_path)
        _run_commands(chat)
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0
        look.fits(chat)
    with look.open(tmp_path, [*arguments, "--resume"]) as chat:
        chat.answers(ENTER, "Continue which conversation?")
        chat.until("You said: go on")
        chat.type(UP)
        chat.has_input("go on")
        chat.empty()
        chat.type(CTRL_R)
        chat.answers("editor" + ENTER, "Which message?")
        chat.has_input("from the editor")


def _complete(chat: PtyChat) -> None:
    for typed, completed in (("/exp", "/export"), ("/gre", "/greet"), ("/thinking hi", "/thinking high")):
        chat.type(typed, TAB)
        chat.has_input(completed)
        chat.empty()
    chat.type("see @deep", TAB)
    chat.until("see @sub/deep-notes.txt")
    chat.type(CTRL_J, "second row", ENTER)
    chat.until("second row")
    chat.until("You said: see")


def _write_in_many_ways(chat: PtyChat) -> None:
    chat.type("a line\\", ENTER, "below")
    chat.until("below")
    chat.type(ENTER)
    chat.until("You said: a line")
    chat.type(paste_keys("one\r\ntwo"))
    chat.until("two")
    chat.type(ENTER)
    chat.until("You said: one")
    log = "".join(f"line {number}\n" for number in range(120))
    chat.type("read ", paste_keys(log), " end")
    chat.reads("read [pasted 120 lines] end")
    chat.type(ENTER)
    chat.until("line 119 end")
    chat.type("draft", CTRL_G)
    chat.has_input("from the editor")
    chat.type(ENTER)
    chat.until("You said: from the editor")


def _attach(chat: PtyChat, folder: Path) -> None:
    """By its path, from the clipboard, with a command and in the text: one more each time."""
    chat.type(paste_keys(str(folder / "dot.png")))
    chat.until("1 image for")
    chat.type(CTRL_V)
    chat.until("2 images for")
    chat.send_line("/image dot.png")
    chat.until("3 images for")
    chat.send_line("what is on @dot.png")
    chat.until("4 images")
    chat.until("You said: what is on")


def _run_commands(chat: PtyChat) -> None:
    chat.send_line("!echo both-$((1+1))")
    chat.until("both-2")
    chat.send_line("!!echo alone-$((1+1))")
    chat.until("alone-2")
    chat.until("only for you")
    chat.send_line("!echo before; sleep 600")
    chat.until("Running")
    chat.type(ESC)
    chat.until("Stopped")
    chat.wait_until_gone("Running")
    chat.send_line("go on")
    chat.until("You said: go on")


def test_a_megabyte_that_is_pasted_is_folded_and_sent_whole(tmp_path: Path) -> None:
    arguments = scripted_model_arguments(tmp_path, ("x", "It came."), contextWindow=2_000_000)
    with PtyChat(tmp_path, arguments) as chat:
        chat.until("context 0%")
        chat.type(paste_keys(("x" * 99 + "\n") * 10_486), " end")
        chat.until("[pasted 10,486 lines] end")
        chat.type(ENTER)
        text = chat.until("It came.")
        assert "more lines" in text
    (session,) = tmp_path.rglob("*.jsonl")
    entries = [json.loads(line) for line in session.read_text().splitlines()]
    (said,) = [entry["message"] for entry in entries if entry.get("message", {}).get("role") == "user"]
    assert len(json.dumps(said)) > 1_048_600


@LOOKS
def test_extensions_of_a_folder_are_there_as_soon_as_it_is_trusted(tmp_path: Path, look: Look) -> None:
    (tmp_path / ".pigeon" / "extensions").mkdir(parents=True)
    (tmp_path / ".pigeon" / "extensions" / "dialogs.py").write_text(DIALOGS)
    with look.open(tmp_path, scripted_model_arguments(tmp_path)) as chat:
        chat.reads(".pigeon/extensions")
        chat.answers(ENTER, "Do you trust")
        chat.send_line("/ask")
        chat.reads("There is no command /ask")
        chat.empty()
        chat.send_line("/trust")
        chat.answers(UP + ENTER, "Do you trust")
        chat.reads("In use now")
        chat.send_line("/ask")
        chat.until("Which bird?")
    # Trusted this time only, it is asked about again; then always.
    with look.open(tmp_path, scripted_model_arguments(tmp_path)) as chat:
        chat.answers(UP + UP + ENTER, "Do you trust")
        chat.reads("In use now")
    with look.open(tmp_path, scripted_model_arguments(tmp_path)) as chat:
        chat.footer("%")
        chat.type("/as", TAB, ENTER)
        chat.until("Which bird?")
        chat.until("widget-shown")
        chat.footer("status" if look.columns > 60 else "s.json")
        assert b"title-shown" in chat.raw
        chat.type(DOWN + ENTER)
        chat.until("Fly south?")
        assert "It is cold." in "\n".join(chat.lines)
        chat.type(ENTER)
        chat.until("of the bird")
        chat.type("Pia", ENTER)
        chat.has_input("Dear pigeon,")
        chat.type(CTRL_J, "coo", ENTER)
        chat.reads("answers ['parrot', True, 'Pia', 'Dear pigeon,\\ncoo']")
        chat.wait_until_gone("widget-shown")
        chat.has_input("text of the editor")
        look.fits(chat)


def test_prompts_and_resources_of_tool_servers_are_completed_and_sent(tmp_path: Path) -> None:
    agent_dir = tmp_path / "agent"
    agent_dir.mkdir()
    (agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": scripted_server()}}))
    with PtyChat(
        tmp_path, scripted_model_arguments(tmp_path), 100, env={"PIGEON_CODING_AGENT_DIR": str(agent_dir)}
    ) as chat:
        chat.footer("scripted")
        chat.type("/mcp__notes__poem pigeons", ENTER)
        # The process that holds the connections is started with low priority.
        chat.until("You said: Write a poem about pigeons (plain)", 60)
        chat.type("/mcp", TAB)
        chat.has_input("/mcp__notes__poem")
        chat.type(" pi", TAB)
        chat.has_input("/mcp__notes__poem pigeons")
        chat.empty()
        chat.type("see @notes:note://o", TAB)
        chat.has_input("see @notes:note://one")
        # The menu may be open, where Enter takes what is chosen; typing closes it.
        chat.type(" again", ENTER)
        chat.until("You said: see @notes:note://one again")
