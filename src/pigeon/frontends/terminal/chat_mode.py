"""`pigeon` in a terminal: the chat, with the agent in a separate process.

The agent is started first; while it starts, the screen is imported and drawn, so that a person can write at once. The
modules that talk to the agent are imported only then, in a thread, so that keys are still answered. The two processes
share nothing: keys are answered whatever the agent does, and an agent that dies does not take the screen with it.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from pigeon import __version__
from pigeon.frontends.call import CommandLine
from pigeon.frontends.printing import colour_system_of
from pigeon.frontends.terminal.agent_launcher import AgentLauncher
from pigeon.frontends.terminal.attachments import Attachments
from pigeon.frontends.terminal.blocks import AnswerText, Notice, ToolCard, UserText
from pigeon.frontends.terminal.footer import FooterFacts
from pigeon.frontends.terminal.inputs import Inputs
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.frontends.terminal.view import View
from pigeon.frontends.terminal.widgets import Widgets
from pigeon.sdk.errors import ProcessDied
from pigeon.system.collector import resume_collecting
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes
from pigeon.wire.base import value_or_default
from pigeon.wire.errors import PigeonError, StartupError, to_printable

if TYPE_CHECKING:
    from pigeon.frontends.terminal.screen.completion import ServerOffer
    from pigeon.sdk.remote.client import Client

HISTORY_FILE = "chat-history"
MOST_ERROR_LINES = 200
# How long tool servers may take to complete a word while a person types.
OFFER_SECONDS = 3.0
TOGETHER_SECONDS = 0.1
SWITCH_SECONDS = 0.0005
FIRST_WIDTH = 80
# Modules that talk to the agent, and those that paint the first lines.
CHAT_MODULES = (
    "pigeon.sdk.remote.client",
    "pigeon.frontends.terminal.chat",
    "pigeon.frontends.terminal.host_questions",
    "rich.console",
    "rich.text",
    "rich.theme",
)
# These are painted once to prepare the code that paints answers and calls.
FIRST_PAINTED = (
    UserText("go"),
    AnswerText("# One\n\nA **word**, `code` and a [link](to).\n\n- item\n\n1. item\n\n```python\nx = 1\n```\n"),
)


def run_chat(line: CommandLine, environment: Environment) -> int:
    """Talk until the person leaves; returns the exit code."""
    if line.api_key_file is not None:
        from pigeon.frontends.starting import with_key_from_file

        line = with_key_from_file(line, environment)
    plain = line.plain or environment.variables.get("TERM", "") in ("", "dumb")
    # A key must not wait for a thread that paints or imports.
    sys.setswitchinterval(SWITCH_SECONDS)
    # Signals wait until an event loop can handle them: only then is the terminal restored.
    signal.pthread_sigmask(signal.SIG_BLOCK, exit_codes.BY_SIGNAL)
    with nullcontext() if plain else _keeping_typed_keys():
        return asyncio.run(_ChatProgram(line, environment, plain).run())


@contextmanager
def _keeping_typed_keys() -> Iterator[None]:
    """Keys that are pressed while the screen is imported are neither echoed nor changed by the terminal."""
    import termios

    before = termios.tcgetattr(0)
    quiet = [*before]
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(0, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)


async def find_server_completions(client: Client | None, text: str) -> list[ServerOffer]:
    """The completions of tool servers for the end of a text; none without an agent, or if it knows no servers."""
    from pigeon.frontends.terminal.screen.completion import ServerOffer

    if client is None:
        return []
    try:
        async with asyncio.timeout(OFFER_SECONDS):
            found = await client.complete_mcp(text)
    except (PigeonError, TimeoutError):
        return []
    return [
        ServerOffer(found.replaces, one.text, value_or_default(one.label, ""), value_or_default(one.description, ""))
        for one in found.completions
    ]


class _ChatProgram:
    """The parts of one chat, from start to end."""

    def __init__(self, line: CommandLine, environment: Environment, plain: bool) -> None:
        self._line = line
        self._plain = plain
        self._environment = environment
        self._inputs: Inputs = asyncio.Queue()
        self._transcript = ChatTranscript(time.monotonic)
        cwd = environment.absolute_path(line.agent.cwd) if line.agent.cwd else environment.cwd
        self._facts = FooterFacts(cwd=cwd, home=environment.home)
        self._widgets = Widgets()
        self._names: dict[str, str] = {}
        self._arguments: dict[str, list[str]] = {}
        self._attachments = Attachments(cwd, environment.home)
        self._errors = _ErrorLines()
        self._launcher = AgentLauncher(line, cwd, self._errors.add_line)
        self._code = exit_codes.OK
        self._client: Client | None = None
        self._view: View | None = None

    async def run(self) -> int:
        self._watch_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, exit_codes.BY_SIGNAL)
        transport = await self._launcher.start_first_agent()
        try:
            self._view = self._make_view()
            # A signal that came before there was a view has decided the exit code.
            return self._code or await self._run_with_view(self._view)
        finally:
            if self._client is not None:
                await self._client.close()
            await transport.close()

    async def _try_restart_with_trust(self, folder: str) -> bool:
        """Restart the agent with what the folder brings: extensions belong to the folder in which the agent starts."""
        if self._client is None or not self._launcher.trust_project(folder):
            return False
        await self._client.restart()
        return True

    async def _run_with_view(self, view: View) -> int:
        drawing = asyncio.ensure_future(view.run())
        # Uncaught exceptions must not be written over the screen.
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: _show_fault(view, about))
        talking = asyncio.ensure_future(self._run_chat(view))
        try:
            await asyncio.wait({talking, drawing}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                talking.cancel()
            with suppress(asyncio.CancelledError):
                await talking
        except (ProcessDied, StartupError) as error:
            view.leave()
            await asyncio.wait({drawing})
            words = getattr(error, "last_words", "") or str(error)
            print(to_printable(words), file=sys.stderr)  # noqa: T201
            return exit_codes.FAILED
        finally:
            view.leave()
            await asyncio.wait({drawing})
        return self._exit_code_of(drawing)

    async def _run_chat(self, view: View) -> None:
        await view.shown.wait()
        await asyncio.to_thread(_import_all, CHAT_MODULES)
        painter = Painter(colour_system_of(self._environment.variables))
        threading.Thread(target=_warm_up_painter, args=(painter,), daemon=True, name="pigeon-imports").start()
        from pigeon.frontends.terminal.chat import Chat
        from pigeon.frontends.terminal.clipboard import Clipboard
        from pigeon.frontends.terminal.host_questions import HostQuestions
        from pigeon.sdk.remote.client import Client
        from pigeon.wire.commands import Prompt

        async def send_message(text: str) -> None:
            await client.send(Prompt(message=text, streaming_behavior="steer"))

        questions = HostQuestions(view, send_message)
        client = Client(
            connect=self._launcher.make_next_transport,
            on_permission=questions.ask_permission,
            on_dialog=questions.ask_dialog,
        )
        self._client = client
        await client.open()
        # `main` switched the collector off: nothing created during the start is garbage.
        resume_collecting()
        self._errors.show_in(view)
        chat = Chat(
            conversation=client,
            transcript=self._transcript,
            view=view,
            inputs=self._inputs,
            facts=self._facts,
            widgets=self._widgets,
            attachments=self._attachments,
            clipboard=Clipboard(view, self._facts.cwd, self._environment.variables, self._programs_path()),
            names=self._names,
            arguments=self._arguments,
            restart=client.restart,
            trusting=self._try_restart_with_trust,
        )
        await chat.run(__version__, "\n\n".join(self._line.messages), self._launcher.chooses_session)

    def _programs_path(self) -> str:
        from pigeon.sandbox.written_folders import filter_programs_path

        environment = self._environment
        return filter_programs_path(environment.agent_dir(), environment.variables.get("PATH"), self._facts.cwd)

    async def _find_files_of_agent(self, wanted: str, most: int) -> list[str]:
        """The files on the machine of the agent; none without an agent, or if it does not answer soon."""
        if self._client is None:
            return []
        try:
            async with asyncio.timeout(OFFER_SECONDS):
                return (await self._client.find_files(text=wanted, limit=most)).paths
        except (PigeonError, TimeoutError):
            return []

    def _exit_code_of(self, drawing: asyncio.Future[None]) -> int:
        """A lost terminal counts as a hang-up, even if it is noticed before the signal comes."""
        error = drawing.exception()
        if isinstance(error, OSError):
            return exit_codes.BY_SIGNAL[signal.SIGHUP]
        if error is not None:
            raise error
        return self._code

    def _make_view(self) -> View:
        variables = self._environment.variables
        colours = colour_system_of(variables)
        unicode = _can_show_unicode(variables)
        if self._plain:
            from pigeon.frontends.terminal.plain import PlainView

            plain = PlainView(self._transcript, self._inputs, sys.stdin, sys.stdout)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, plain.on_interrupt)
            return plain
        from pigeon.frontends.terminal.persons_editor import edit_file
        from pigeon.frontends.terminal.screen.completion import ChatCompleter, FilesOfAgent
        from pigeon.frontends.terminal.screen.screen import Screen
        from pigeon.system.project_files import ProjectFiles

        here = ProjectFiles(lambda: self._facts.cwd, variables, self._environment.home)
        loop = asyncio.get_running_loop()

        def find_elsewhere(wanted: str, most: int) -> list[str]:
            finding = asyncio.run_coroutine_threadsafe(self._find_files_of_agent(wanted, most), loop)
            return finding.result(2 * OFFER_SECONDS)

        files = FilesOfAgent(here, lambda: bool(self._facts.machine), find_elsewhere)
        return Screen(
            transcript=self._transcript,
            facts=self._facts,
            widgets=self._widgets,
            painter=Painter(colours, ascii_only=not unicode),
            now=time.monotonic,
            inputs=self._inputs,
            completer=ChatCompleter(
                self._names, files, self._arguments, lambda text: find_server_completions(self._client, text)
            ),
            history=os.path.join(self._environment.agent_dir(), HISTORY_FILE),
            colours=colours is not None,
            is_picture=self._attachments.is_picture,
            edit_file=lambda path: edit_file(path, variables, self._environment.agent_dir()),
        )

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def leave_on_signal(number: signal.Signals) -> None:
            self._code = exit_codes.BY_SIGNAL[number]
            if self._view is not None:
                self._view.leave()

        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, leave_on_signal, number)


class _ErrorLines:
    """The agent's stderr, shown in the chat; lines that arrive together are one notice.

    Lines are kept until there is a chat. For an agent that does not start they are its last words.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._view: View | None = None
        self._shown_soon: asyncio.Handle | None = None

    def add_line(self, line: str) -> None:
        if len(self._lines) < MOST_ERROR_LINES:
            self._lines.append(line)
        if self._view is not None and self._shown_soon is None:
            self._shown_soon = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._show)

    def show_in(self, view: View) -> None:
        """Show lines in this view from now on."""
        self._view = view
        self._show()

    def _show(self) -> None:
        self._shown_soon = None
        text = "\n".join(line.removeprefix("Warning: ") for line in self._lines).strip()
        self._lines.clear()
        if text and self._view is not None:
            self._view.show(Notice(text, "warning"))


def _import_all(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(name)


def _warm_up_painter(painter: Painter) -> None:
    """Paint some blocks without showing them: the first of each kind takes ten times as long, with its imports."""
    from pigeon.tools.catalog import SHELL

    for block in (*FIRST_PAINTED, ToolCard("", SHELL, {"command": "ls"}, 0.0, "file", seconds=1.0)):
        painter.paint(block, FIRST_WIDTH)
    painter.paint_live_markdown(FIRST_PAINTED[1].text, FIRST_WIDTH)


def _show_fault(view: View, about: Mapping[str, Any]) -> None:
    fault = about.get("exception")
    view.show(Notice(f"{type(fault).__name__}: {fault}" if fault else str(about.get("message", "")), "error"))


def _can_show_unicode(variables: Mapping[str, str]) -> bool:
    """True if the terminal shows more than ASCII, as far as the locale tells."""
    locale = variables.get("LC_ALL") or variables.get("LC_CTYPE") or variables.get("LANG") or "UTF-8"
    return "utf" in locale.lower()
