"""`pigeon serve`: many conversations, over the network."""

from __future__ import annotations

import os
import sys

from pigeon.app.options import AgentOptions
from pigeon.cli.commands.call import CommandCall
from pigeon.cli.printing import say
from pigeon.system.clock import SteadyLoop
from pigeon.wire.errors import StartupError, UsageError

NO_EXTRA = "pigeon serve needs packages that are not installed: pip install 'pigeon-agent[serve]'"


def run_serve(call: CommandCall) -> int:
    """Serve until a signal; returns the exit code."""
    try:
        from pigeon.serve.conversations import Conversations, ServeLimits
        from pigeon.serve.http.tokens import Tokens
        from pigeon.serve.service import NetworkService, ServeOptions
    except ModuleNotFoundError as error:
        raise StartupError(f"{NO_EXTRA} ({error.name} is missing)") from None
    environment = call.environment
    agent_dir = environment.agent_dir()
    tokens = Tokens(environment.absolute(call.options.get("token_file") or os.path.join(agent_dir, "serve.token")))
    asked = call.options.get("socket")
    socket = None if asked is None else environment.absolute(asked)
    roots = [environment.absolute(root) for root in call.options.get("root") or [environment.cwd]]
    options = AgentOptions(agent_dir=agent_dir, model=call.options.get("model"))

    async def serve() -> int:
        conversations = Conversations(agent_dir, options, dict(environment.variables), roots, ServeLimits())
        settings = ServeOptions(host=call.options.get("host") or "127.0.0.1", port=_port(call), socket=socket)
        return await NetworkService(conversations, tokens, settings).run(_ready)

    return SteadyLoop().run_until_complete(serve())


def _ready(address: str, link: str) -> None:
    say(f"Serving on {address}")
    say(f"Open once in your browser: {link}")
    # Programs that start it wait for these lines.
    sys.stdout.flush()


def _port(call: CommandCall) -> int:
    asked = call.options.get("port") or "7463"
    if not asked.isdigit() or int(asked) > 65535:
        raise UsageError(f'--port must be a number up to 65535; got "{asked}"')
    return int(asked)
