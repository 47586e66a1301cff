"""The program called from a command line: arguments and piped text in, exit code and output out.

It is forked as agents are (`fakes.fork_server`), where that can be done.
"""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass
from typing import Any

from fakes.agent_folders import AgentFolders
from fakes.fork_server import available, fork_server
from fakes.rpc_process import command_line

DEADLINE = 30.0


@dataclass(frozen=True)
class Ended:
    """How a call ended, and what it printed."""

    code: int
    out: str
    err: str


class Calling:
    """A call that goes on; `ended` waits for it."""

    def __init__(self, folders: AgentFolders, arguments: tuple[str, ...], env: dict[str, str] | None = None) -> None:
        read, write = os.pipe()
        environment = folders.environment(env)
        if available() and not env:
            server = fork_server(command_line()[0])
            self.process: Any = server.start(list(arguments), write, folders.work, environment)
        else:
            self.process = subprocess.Popen(
                [*command_line(), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=write,
                cwd=folders.work,
                env=environment,
                bufsize=0,
                start_new_session=True,
            )
        os.close(write)
        self._errors: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb") as stream:
            self._errors.append(stream.read())

    def ended(self) -> Ended:
        """Wait for its end."""
        self.process.stdin.close()
        out = b"".join(iter(lambda: self.process.stdout.read(65536), b""))
        self.process.stdout.close()
        return Ended(self.process.wait(DEADLINE), out.decode(), self.errors())

    def errors(self) -> str:
        """What it said on stderr until its end."""
        self._reader.join(DEADLINE)
        return b"".join(self._errors).decode()


def call(folders: AgentFolders, *arguments: str, given: str = "", env: dict[str, str] | None = None) -> Ended:
    """Call the program, pipe text into it, and wait for its end."""
    calling = Calling(folders, arguments, env)
    if given:
        calling.process.stdin.write(given.encode())
    return calling.ended()
