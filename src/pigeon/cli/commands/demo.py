"""`pigeon demo`: Pigeon without a key. A chat with the demo model, one answer of it, or, without a terminal, a tour."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from pigeon.cli.args import parse_arguments
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import print_line, print_to_stderr
from pigeon.providers.demo.api import DEMO
from pigeon.sdk.agent import Agent
from pigeon.system.extras import describe_missing_extra, find_missing_module
from pigeon.transport import exit_codes
from pigeon.wire.content import text_of
from pigeon.wire.events import MessageEnd, ToolExecutionEnd, ToolExecutionStart
from pigeon.wire.messages import AssistantMessage

MODEL = ("--model", DEMO.name)
FILES = {
    "notes.txt": "Pigeons find their way home from places where they have never been.\n",
    "count.py": "for number in range(3):\n    print(number)\n",
}
TOUR = (
    "list the files",
    "read notes.txt",
    "run python3 count.py",
    "write hello to hello.txt",
)
INTRODUCTION = (
    "Pigeon is a coding agent. This tour uses its demo model, which needs no key and no network, in a folder that is "
    "removed afterwards. The tools are real."
)
CLOSING = (
    "Talk to the demo yourself:   pigeon demo            (in a terminal)\n"
    'Use a real model:            export ANTHROPIC_API_KEY=…; pigeon "what does this project do?"\n'
    "Check your setup:            pigeon doctor"
)


def run_demo(call: CommandCall) -> int:
    """Chat, answer, or show the tour."""
    prompt = [" ".join(call.words)] if call.words else []
    from pigeon.cli.running import has_terminal, open_chat

    missing = find_missing_module("chat") if has_terminal() else None
    if missing is not None:
        print_to_stderr(f"{describe_missing_extra('The chat', 'chat', missing)}\n")
    elif has_terminal():
        return open_chat(parse_arguments([*MODEL, "--", *prompt] if prompt else list(MODEL)), call.environment)
    if prompt:
        from pigeon.frontends.print.one_answer import run_one_answer

        return run_one_answer(parse_arguments(["-p", *MODEL, "--no-session", "--", *prompt]), call.environment)
    return asyncio.run(_run_until_signal(call.environment.temporary_folder))


async def _run_until_signal(temporary: str) -> int:
    """Run the tour; a signal ends it early, and its folder is still removed. `asyncio.run` handles Ctrl-C."""
    tour = asyncio.ensure_future(_run_tour(temporary))
    codes: list[int] = []

    def cancel_tour(code: int) -> None:
        codes.append(code)
        tour.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, cancel_tour, exit_codes.BY_SIGNAL[number])
    try:
        return await tour
    except asyncio.CancelledError:
        if not codes:
            raise
        return codes[0]


async def _run_tour(temporary: str) -> int:
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="pigeon-demo-", dir=temporary)
    try:
        _write_files(folder)
        print_line(INTRODUCTION)
        async with Agent(
            model=DEMO.name, cwd=folder, no_session=True, no_extensions=True, no_context_files=True, trust_project=False
        ) as agent:
            for prompt in TOUR:
                print_line(f"\nyou     {prompt}")
                async for event in agent.prompt(prompt):
                    _show_event(event)
        print_line(f"\n{CLOSING}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return exit_codes.OK


def _write_files(folder: str) -> None:
    for name, text in FILES.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def _show_event(event: Any) -> None:
    if isinstance(event, ToolExecutionStart):
        shown = event.args if isinstance(event.args, dict) else {}
        print_line(f"{event.tool_name.ljust(6)}  {' '.join(' '.join(str(value).split()) for value in shown.values())}")
    elif isinstance(event, ToolExecutionEnd):
        for line in text_of(event.result.content).strip().splitlines():
            print_line(f"        | {line}")
    elif isinstance(event, MessageEnd) and isinstance(event.message, AssistantMessage):
        text = text_of(event.message.content).strip()
        if text:
            print_line("pigeon  " + text.replace("\n", "\n        "))
