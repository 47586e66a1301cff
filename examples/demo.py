"""The conversation of `make demo`: a program starts `pigeon --mode rpc` and shows what it does as a person reads it.

    python examples/demo.py

The built-in demo model needs no key and no network; the tools that it calls are the real ones. Everything happens in a
folder that is removed at the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import pigeon

GREETING = 'def greet(name):\n    return f"Hallo, {name}!"\n\n\nprint(greet("world"))\n'
PROMPTS = (
    "list the files",
    "replace Hallo with Hello in greeting.py",
    "run `python3 greeting.py`",
)
COLOURS = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show(text: str, style: str = "", indent: str = "") -> None:
    """Print lines, coloured if a person looks at a terminal that has colours."""
    for line in text.rstrip("\n").split("\n"):
        shown = f"\x1b[{style}m{line}\x1b[0m" if style and COLOURS and line else line
        print((indent + shown).rstrip(), flush=True)


def permit(request: pigeon.PermissionRequest) -> bool:
    """Asked before a file is changed; a real program would ask its user."""
    show(f"? May it {request.tool_name} {request.arguments['path']}?", "33", "  ")
    for line in (request.diff or "").splitlines():
        show(line, {"+": "32", "-": "31"}.get(line[:1], ""), "    ")
    show("Yes. (This program says yes; yours would ask its user.)", "33", "  ")
    return True


async def talk(client: pigeon.Client, prompt: str) -> None:
    """One prompt, its tools and its answer."""
    show(f"\n> {prompt}", "1")
    answer = ""
    async for event in client.prompt(prompt):
        if isinstance(event, pigeon.TextDelta):
            answer += event.delta
        elif isinstance(event, pigeon.ToolExecutionStart):
            answer = ""  # what was said before a tool is called is no answer yet
            about = event.args.get("command") or event.args.get("path") or ""
            show(f"* {event.tool_name} {about}", "36", "  ")
        elif isinstance(event, pigeon.ToolExecutionEnd):
            text = "".join(part.text for part in event.result.content if isinstance(part, pigeon.TextContent))
            show(text, "31" if event.is_error else "2", "    ")
    show(answer, "", "  ")


async def main() -> None:
    """Start an agent in a new folder and talk to it."""
    with tempfile.TemporaryDirectory(prefix="pigeon-demo-") as place:
        folder, home = Path(place) / "work", Path(place) / "agent"
        folder.mkdir()
        (folder / "greeting.py").write_text(GREETING)
        show("This program starts `pigeon --mode rpc` in a new folder with one file, and talks to it over JSON lines.")
        show("The model is the built-in demo (no key, no network, no intelligence); the tools are the real ones.")
        async with pigeon.Client(
            command=[sys.executable, "-P", "-m", "pigeon", "--mode", "rpc", "--model", "demo", "--no-session"],
            cwd=str(folder),
            env={**os.environ, "PIGEON_CODING_AGENT_DIR": str(home)},  # your own settings are left out of it
            permissions={"ask": ["edit"]},
            on_permission=permit,
        ) as client:
            for prompt in PROMPTS:
                await talk(client, prompt)


try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
except BrokenPipeError:  # nobody reads any more, as with `| head`
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
