"""`pigeon acp`: serve an editor on stdin and stdout until it disconnects. Agents are built when a session needs one, so
that the first answer waits for nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from textwrap import wrap
from typing import TYPE_CHECKING

from pigeon import __version__
from pigeon.frontends.acp.acp_server import AcpServer
from pigeon.frontends.acp.editions.auth_methods import SETUP_ARGUMENTS
from pigeon.frontends.call import CommandLine
from pigeon.rpc.shutdown import Shutdown, die_if_interrupted
from pigeon.system.clock import SteadyLoop
from pigeon.system.collector import resume_collecting
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes, stdio
from pigeon.transport.reader import Framing, Reader
from pigeon.transport.writer import Writer
from pigeon.wire.errors import StartupError, UsageError, to_printable

if TYPE_CHECKING:
    from pigeon.frontends.acp.sessions import Beginning
    from pigeon.sdk.conversation import Conversation
    from pigeon.sdk.host_calls import OnDialog, OnPermission
    from pigeon.secrets.redactor import Redactor

NO_TERMINAL = "pigeon acp --setup asks for a key, so it needs a terminal"
STOP_SECONDS = 2.0
FLUSH_SECONDS = 2.0


def run_acp(line: CommandLine, environment: Environment) -> int:
    """Serve; returns the exit code, unless SIGINT ends the process. With `--setup` ask for a key instead."""
    if line.unknown == SETUP_ARGUMENTS:
        return set_up_key(environment)
    if line.messages:
        raise UsageError(f'pigeon acp takes no prompt: "{line.messages[0]}"')
    if line.agent.record is not None:
        raise UsageError("--record is for one conversation, and an editor may start many")
    if line.unknown:
        from pigeon.frontends.starting import refuse_unknown_options

        refuse_unknown_options(line, environment)
    # Before the loop: it opens descriptors, and would get 0 or 1 where the editor closed them.
    descriptors = stdio.claim_stdio()
    code = SteadyLoop().run_until_complete(_serve(line, environment, descriptors))
    die_if_interrupted(code)
    return code


async def _serve(line: CommandLine, environment: Environment, descriptors: tuple[int, int]) -> int:
    shutdown = Shutdown()
    shutdown.watch_signals()
    writer = Writer(descriptors[1], lambda: shutdown.request_exit(exit_codes.FAILED))
    beginner = _Beginner(line, environment)
    server = AcpServer(writer, beginner.begin, __version__, environment.home, environment.cwd or "/")

    def on_input_ended() -> None:
        server.peer.on_input_end()
        shutdown.request_exit(exit_codes.OK)

    Reader(descriptors[0], Framing(tells_ends=True), server.peer.handle_frames, on_input_ended).start()
    # `main` switched the collector off: nothing created during the start is garbage.
    resume_collecting()
    code = await shutdown.wait_for_request()
    await shutdown.wait_for_cleanup(asyncio.ensure_future(server.close()), STOP_SECONDS)
    writer.close(FLUSH_SECONDS)
    return code


def set_up_key(environment: Environment) -> int:
    """Ask for a provider and its key at the terminal, and keep them in `auth.json`; the code is 0 if they were kept."""
    if not (sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError(NO_TERMINAL)
    from getpass import getpass

    from pigeon.config.credentials import AuthFile
    from pigeon.frontends.printing import WIDTH, did_you_mean, print_line, print_to_stderr
    from pigeon.providers.catalog.built_in import KNOWN

    print_line("Pigeon needs a provider's API key to use a model:")
    print_line("\n".join(wrap(", ".join(KNOWN), WIDTH)))
    try:
        provider = input("Provider (anthropic): ").strip() or "anthropic"
        if provider not in KNOWN:
            print_to_stderr(f'There is no provider "{provider}".{did_you_mean(provider, KNOWN)}')
            return exit_codes.FAILED
        key = getpass(f"Key of {KNOWN[provider].name} (not shown as you type): ").strip()
    except (EOFError, KeyboardInterrupt):
        return exit_codes.FAILED
    if not key:
        print_to_stderr("No key was entered, so nothing was changed.")
        return exit_codes.FAILED
    file = os.path.join(environment.agent_dir(), "auth.json")
    problem = AuthFile(file).store_credential(provider, {"type": "api_key", "key": key})
    if problem is not None:
        print_to_stderr(problem)
        return exit_codes.FAILED
    print_line(f"The key is stored in {file}.")
    return exit_codes.OK


class _Beginner:
    """Makes the conversations of one process, with the options that it was called with."""

    def __init__(self, line: CommandLine, environment: Environment) -> None:
        self._line = line
        self._environment = environment
        self._told: set[str] = set()
        self._redactor: Redactor | None = None

    async def begin(
        self, beginning: Beginning, on_permission: OnPermission | None = None, on_dialog: OnDialog | None = None
    ) -> Conversation:
        """An agent in this process; raises `StartupError`."""
        from pigeon.system.garbage import pausing_garbage_collection

        with pausing_garbage_collection():
            from msgspec.structs import replace

            from pigeon.app.build import build
            from pigeon.rpc.in_process import SPOKEN
            from pigeon.sdk.agent import Agent

        options = replace(
            self._line.agent.for_dialect(SPOKEN),
            cwd=beginning.cwd,
            session=beginning.session,
            fork=beginning.fork,
            no_session=beginning.unsaved,
            offers=("plans", "agents"),
            attended=True,
        )
        if beginning.unsaved:
            # The reader is only asked about models and files, so no extension of the user is run.
            options = replace(options, no_extensions=True, extensions=())
        if beginning.append_system_prompt:
            words = (*options.append_system_prompt, *beginning.append_system_prompt)
            options = replace(options, append_system_prompt=words)
        if beginning.system_prompt is not None:
            options = replace(options, system_prompt=beginning.system_prompt)
        if self._redactor is None:
            from pigeon.frontends.starting import mask_prints
            from pigeon.secrets.redactor import Redactor

            self._redactor = Redactor()
            mask_prints(self._redactor)
        built = await build(options, self._environment, self._redactor)
        for problem in built.problems:
            if problem not in self._told:
                self._told.add(problem)
                print(f"Warning: {to_printable(problem)}", file=sys.stderr)  # noqa: T201
        agent = Agent.over(built, on_permission, on_dialog)
        await agent.open()
        models = built.session.models
        is_new = beginning.session is None and not beginning.unsaved
        if is_new and models.model is None and models.problem and models.list_available():
            # Without any key, it is the key that the editor asks for.
            await agent.close()
            raise StartupError(models.problem)
        return agent
