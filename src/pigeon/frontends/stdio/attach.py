"""`pigeon attach`: the protocol of `--mode rpc` on stdin and stdout, for an agent of `pigeon serve`.

It is for programs that can only start a subprocess: each speaks its own dialect, lost connections are restored
unnoticed, and when its input ends, the conversation continues without it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from pigeon import __version__
from pigeon.dialects.base import Dialect
from pigeon.dialects.choice import choose_dialect_name, make_dialect
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import print_to_stderr
from pigeon.rpc.relay import Relay
from pigeon.rpc.shutdown import Shutdown, die_if_interrupted
from pigeon.sdk.records import event_of
from pigeon.sdk.remote.addresses import ServedAddress
from pigeon.sdk.remote.served_transport import ServedPlace, ServedTransport, find_served_place
from pigeon.system.clock import SteadyLoop
from pigeon.system.collector import resume_collecting
from pigeon.system.environment import Environment
from pigeon.transport import exit_codes, stdio
from pigeon.transport.reader import DEFAULT_CAP, Framing, Reader
from pigeon.transport.writer import Writer
from pigeon.wire.choices import TOOL_OFFERS
from pigeon.wire.errors import StartupError, UsageError, to_printable

PATIENCE_SECONDS = 300.0
DRAIN_SECONDS = 5.0
FLUSH_SECONDS = 2.0
CLEAR = "Warning: the token goes to {} in the clear, where others on the network may read it. Use wss: or https:"


def run_attach(call: CommandCall) -> int:
    """Relay until the host disconnects, or the conversation cannot be reached any more; returns the exit code."""
    environment = call.environment
    if call.options.get("mode") not in (None, "rpc", "rpc-ui"):
        raise UsageError("pigeon attach only supports --mode rpc")
    place = _parse_place(call)
    token = find_token(place.address, call.options.get("token_file"), environment)
    if token is not None and place.address.origin.startswith("ws:") and not _is_loopback(place.address):
        print_to_stderr(CLEAR.format(place.address.origin))
    patience = _parse_reconnect_seconds(call)
    variables = environment.variables
    name = choose_dialect_name(call.options.get("dialect"), environment.called, (), variables)
    dialect = make_dialect(name, __version__, variables)
    # Before the loop: it opens descriptors, and would get 0 or 1 where the host closed them.
    descriptors = stdio.claim_stdio()
    resume_collecting()
    code = SteadyLoop().run_until_complete(_relay(place, token, patience, dialect, descriptors))
    die_if_interrupted(code)
    return code


async def _relay(
    place: ServedPlace, token: str | None, patience: float | None, dialect: Dialect, descriptors: tuple[int, int]
) -> int:
    shutdown = Shutdown()
    shutdown.watch_signals()
    writer = Writer(descriptors[1], lambda: shutdown.request_exit(exit_codes.FAILED))

    def wait_for_output_room() -> Awaitable[None] | None:
        return relay.wait_if_full()

    transport = ServedTransport(place.address, token, place.new, patience, wait_for_output_room)
    relay = Relay(writer, dialect, transport.write, event_of)
    opening = asyncio.ensure_future(
        transport.open(relay.on_agent_data, lambda: shutdown.request_exit(exit_codes.FAILED))
    )
    ended = asyncio.ensure_future(shutdown.wait_for_request())
    await asyncio.wait({opening, ended}, return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        opening.cancel()
        return ended.result()
    opening.result()
    relay.send_greeting()
    Reader(
        descriptors[0], Framing(DEFAULT_CAP), relay.handle_frames, lambda: shutdown.request_exit(exit_codes.OK)
    ).start()
    code = await ended
    if code == exit_codes.OK:
        code = await shutdown.wait_for_work(asyncio.ensure_future(_wait_for_answers(relay)))
    if code != exit_codes.OK and transport.reason:
        print_to_stderr(f"Error: {to_printable(transport.reason)}")
    await transport.close()
    writer.close(FLUSH_SECONDS if code == exit_codes.OK else 0.2)
    return code


async def _wait_for_answers(relay: Relay) -> None:
    """Wait for the answers to commands that were sent before the input ended."""
    with suppress(TimeoutError):
        await asyncio.wait_for(relay.wait_until_drained(), DRAIN_SECONDS)


def _parse_place(call: CommandCall) -> ServedPlace:
    environment = call.environment
    url, folder = call.word_at(0), call.options.get("new")
    if url.startswith("unix:"):
        url = "unix:" + environment.absolute_path(url.removeprefix("unix:").removeprefix("//"))
    try:
        place = find_served_place(
            url,
            None if folder is None else environment.absolute_path(folder),
            call.options.get("model"),
            tuple(offer for offer in TOOL_OFFERS if call.has_option(offer)),
        )
    except ValueError as error:
        text = str(error).replace("cwd=", "--new DIR").replace("token=", "--token-file or PIGEON_TOKEN")
        raise UsageError(text.replace("url must", "URL must")) from None
    if place is None:
        raise UsageError(f"{url} names no conversation: add ?session=ID, or start a new one with --new DIR")
    if place.new is None and call.options.get("model") is not None:
        raise UsageError(
            "--model is for a new conversation (--new DIR); to change the model of an existing one, send set_model"
        )
    return place


def find_token(address: ServedAddress, file: str | None, environment: Environment) -> str | None:
    """The token for a server: from a file, from the variable, or our own for a server on this machine."""
    if address.path:
        return None
    if file is not None:
        return _read_token(environment.absolute_path(file))
    token = environment.variables.get("PIGEON_TOKEN")
    own = os.path.join(environment.agent_dir(), "serve.token")
    if token is None and _is_loopback(address) and os.path.exists(own):
        # Never for another machine: whatever listens there would get our token.
        return _read_token(own)
    return token


def _read_token(path: str) -> str:
    """The first `admin` token of a file, else its first token; a line may consist of a token alone."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not lines:
        raise StartupError(f"{path} contains no token")
    chosen = next((words for words in lines if words[0] == "admin" and len(words) > 1), lines[0])
    return chosen[1] if len(chosen) > 1 else chosen[0]


def _is_loopback(address: ServedAddress) -> bool:
    host = urlsplit(address.origin).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse_reconnect_seconds(call: CommandCall) -> float | None:
    asked = call.options.get("reconnect")
    if asked is None:
        return PATIENCE_SECONDS
    if not asked.isdecimal():
        raise UsageError(f'--reconnect must be a whole number of seconds; got "{asked}"')
    return float(asked)
