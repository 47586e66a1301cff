"""`pigeon` in a terminal: the chat, with the agent in a process of its own.

The agent is started first; while it starts, the screen is imported and drawn, so that a person can write at once. The
two share nothing: whatever the agent does, keys are answered, and an agent that dies does not take the screen along.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from pigeon import __version__
from pigeon.app.environment import Environment
from pigeon.cli.args import CommandLine, agent_arguments
from pigeon.sdk.errors import ProcessDied
from pigeon.sdk.remote.client import Client
from pigeon.terminal.attachments import Attachments
from pigeon.terminal.chat import Chat
from pigeon.terminal.clipboard import Clipboard
from pigeon.terminal.footer import FooterFacts
from pigeon.terminal.host_questions import HostQuestions
from pigeon.terminal.inputs import Inputs
from pigeon.terminal.painting import Painter
from pigeon.terminal.plain import PlainView
from pigeon.terminal.transcript import ChatTranscript
from pigeon.terminal.view import View
from pigeon.terminal.widgets import Widgets
from pigeon.transport import exit_codes
from pigeon.wire.errors import StartupError

HISTORY_FILE = "chat-history"


def run_chat(line: CommandLine, environment: Environment) -> int:
    """Talk until the person leaves; returns the exit code."""
    return asyncio.run(_ChatProgram(line, environment).run())


class _ChatProgram:
    """The parts of one chat, and their life together."""

    def __init__(self, line: CommandLine, environment: Environment) -> None:
        self._line = line
        self._environment = environment
        self._inputs: Inputs = asyncio.Queue()
        self._transcript = ChatTranscript(time.monotonic)
        cwd = environment.absolute(line.agent.cwd) if line.agent.cwd else environment.cwd
        self._facts = FooterFacts(cwd=cwd, home=environment.home)
        self._widgets = Widgets()
        self._names: dict[str, str] = {}
        self._attachments = Attachments(cwd, environment.home)

    async def run(self) -> int:
        """Start the agent, draw, talk, end both."""
        made: asyncio.Future[View] = asyncio.get_running_loop().create_future()
        questions = HostQuestions(made)
        # Without the choice of a session, which is made here.
        choose = self._line.agent.resume == ""
        left_out = ("--resume", "-r") if choose else ()
        options = [word for word in agent_arguments(self._line.arguments) if word not in left_out]
        # Without the folder on the path: a project could have a package of our name, or of one that we import.
        command = [sys.executable, "-P", "-m", "pigeon", "--mode", "rpc", *options]
        client = Client(command=command, on_permission=questions.permission, on_dialog=questions.dialog)
        opening = asyncio.ensure_future(client.open())
        await asyncio.sleep(0)
        try:
            view = self._view()
            made.set_result(view)
            return await self._talk(client, opening, view, choose)
        finally:
            opening.cancel()
            await asyncio.wait({opening})
            await client.close()

    async def _talk(self, client: Client, opening: asyncio.Future[None], view: View, choose: bool) -> int:
        drawing = asyncio.ensure_future(view.run())
        self._watch_signals(view)
        try:
            await asyncio.wait({opening, drawing}, return_when=asyncio.FIRST_COMPLETED)
            if drawing.done():
                return exit_codes.OK
            opening.result()
            chat = Chat(
                conversation=client,
                transcript=self._transcript,
                view=view,
                inputs=self._inputs,
                facts=self._facts,
                widgets=self._widgets,
                attachments=self._attachments,
                clipboard=Clipboard(view, self._facts.cwd, self._environment.variables),
                names=self._names,
                restart=client.restart,
            )
            await self._until_left(chat, drawing, choose)
        except (ProcessDied, StartupError) as error:
            view.leave()
            await asyncio.wait({drawing})
            words = getattr(error, "last_words", "") or str(error)
            print(words, file=sys.stderr)  # noqa: T201
            return exit_codes.FAILED
        finally:
            view.leave()
            await asyncio.wait({drawing})
        return exit_codes.OK

    async def _until_left(self, chat: Chat, drawing: asyncio.Future[None], choose: bool) -> None:
        talking = asyncio.ensure_future(chat.run(__version__, "\n\n".join(self._line.messages), choose))
        await asyncio.wait({talking, drawing}, return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            talking.cancel()
        with suppress(asyncio.CancelledError):
            await talking

    def _view(self) -> View:
        variables = self._environment.variables
        colours = _colours(variables)
        unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        if self._line.plain or variables.get("TERM", "") in ("", "dumb"):
            return PlainView(self._transcript, self._inputs, sys.stdin, sys.stdout)
        from pigeon.terminal.screen.completion import ChatCompleter, ProjectFiles
        from pigeon.terminal.screen.screen import Screen

        files = ProjectFiles(self._facts.cwd, variables, self._environment.home)
        return Screen(
            transcript=self._transcript,
            facts=self._facts,
            widgets=self._widgets,
            painter=Painter(colours, ascii_only=not unicode),
            now=time.monotonic,
            inputs=self._inputs,
            completer=ChatCompleter(self._names, files),
            history=os.path.join(self._environment.agent_dir(), HISTORY_FILE),
            colours=colours is not None,
            is_picture=self._attachments.is_picture,
        )

    def _watch_signals(self, view: View) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, view.leave)
        if isinstance(view, PlainView):
            loop.add_signal_handler(signal.SIGINT, view.stop)


def _colours(variables: Mapping[str, str]) -> str | None:
    """How many colours the terminal has, as rich calls it."""
    if variables.get("NO_COLOR") or variables.get("TERM", "") in ("", "dumb"):
        return None
    if variables.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256" in variables.get("TERM", "") else "standard"
