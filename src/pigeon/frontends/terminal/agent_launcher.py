"""How a chat reaches its agent: a process with the options of the call, or a connection to `pigeon serve`.

The first agent is started before there is a screen. A later one continues the current conversation, so it gets no
option that chooses one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress

from pigeon.frontends.call import CommandLine
from pigeon.sdk.remote.transports import READ_KEY, ProgramChoices, SubprocessTransport, key_line
from pigeon.system.process.python_programs import make_python_command
from pigeon.wire.errors import UsageError

KEY_OPTIONS = ("--api-key", "--api-key-file")
RESUME_OPTIONS = ("--resume", "-r")
# Options that choose a conversation.
SESSION_OPTIONS = (*RESUME_OPTIONS, "--fork", "--session", "--session-id", "--continue", "-c", "--name", "-n")
# What the chat shows.
OFFERS = ("--plans", "--agents")
TRUST_OPTIONS = ("--approve", "-a", "--no-approve", "-na")


class AgentLauncher:
    """Makes the connections of one chat. `on_stderr` is called with each line that an agent writes there."""

    def __init__(self, line: CommandLine, cwd: str, on_stderr: Callable[[str], None]) -> None:
        self._line = line
        self._cwd = cwd
        self._on_stderr = on_stderr
        self._trusts = False
        self._first: SubprocessTransport | None = None

    @property
    def chooses_session(self) -> bool:
        """True if the person chooses the conversation in the chat, instead of by an option."""
        return self._line.agent.resume == ""

    async def start_first_agent(self) -> SubprocessTransport:
        """Start the first agent; the caller closes its connection."""
        transport = self._first = self._make_transport(())
        await transport.start()
        return transport

    def make_next_transport(self, going_on: bool) -> SubprocessTransport:
        """The first agent, then new ones, which are started when they are opened."""
        transport, self._first = self._first, None
        return transport or self._make_transport(SESSION_OPTIONS if going_on else ())

    def trust_project(self, folder: str) -> bool:
        """Let later agents use the files of the project in this folder; returns False if they are not started there."""
        if self._line.connect or not self._starts_in(folder):
            return False
        self._trusts = True
        return True

    def _starts_in(self, folder: str) -> bool:
        with suppress(OSError):
            return os.path.samefile(folder, self._cwd)
        return False

    def _make_transport(self, without: Collection[str]) -> SubprocessTransport:
        """The connection to an agent that is not started yet, with the options of this call except for `without`."""
        if self._line.connect is not None:
            return self._make_attach_transport(self._line.connect)
        # A key is passed in another way, and what is chosen here needs no option.
        chosen = (*(RESUME_OPTIONS if self.chooses_session else ()), *(TRUST_OPTIONS if self._trusts else ()))
        options = self._line.own_options((*KEY_OPTIONS, *chosen, *without))
        options += TRUST_OPTIONS[:1] if self._trusts else ()
        command = make_python_command("pigeon.cli.main", "--mode", "rpc", "--attended", *OFFERS, *options)
        key = self._line.agent.api_key
        if key is None:
            return SubprocessTransport(command, ProgramChoices(on_stderr=self._on_stderr))
        try:
            choices = ProgramChoices(first_line=key_line(key), on_stderr=self._on_stderr)
        except ValueError:
            raise UsageError("The key of --api-key must be one line that is not empty") from None
        return SubprocessTransport([*command, *READ_KEY], choices)

    def _make_attach_transport(self, url: str) -> SubprocessTransport:
        """The connection to a conversation of `pigeon serve`, or to a new one in this folder."""
        from pigeon.sdk.remote.addresses import parse_address

        try:
            new = parse_address(url).session is None
        except ValueError as error:
            raise UsageError(f"--connect: {error}") from None
        model = self._line.agent.model
        options = ["--new", self._cwd, *OFFERS, *([] if model is None else ["--model", model])] if new else []
        command = make_python_command("pigeon.cli.main", "attach", url, *options)
        return SubprocessTransport(command, ProgramChoices(on_stderr=self._on_stderr))
