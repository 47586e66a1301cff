"""What the modes with an agent share: choosing the dialect, claiming the descriptors, building the agent, printing its
warnings, and handling unknown options."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TextIO, cast

from msgspec import Struct, structs

from pigeon import __version__
from pigeon.app.build import BuiltAgent, build
from pigeon.dialects.base import Dialect
from pigeon.dialects.choice import choose_dialect_name, make_dialect
from pigeon.frontends.call import CommandLine
from pigeon.secrets.addresses import mask_addresses
from pigeon.secrets.redactor import RedactedText, Redactor
from pigeon.system.clock import SteadyLoop
from pigeon.system.collector import resume_collecting
from pigeon.system.environment import Environment
from pigeon.transport import stdio
from pigeon.wire.errors import StartupError, UsageError, to_printable

LONGEST_KEY = 64 * 1024
KEY_SECONDS = 10.0
Descriptors = tuple[int, int]


class StartedAgent(Struct, frozen=True):
    """An agent with all that its mode needs: stdin and stdout, and the call.

    Words of the call that are values of extensions' options no longer count as messages. `show`, if set, is called with
    `in` or `out` and each line of the protocol.
    """

    agent: BuiltAgent
    descriptors: Descriptors
    line: CommandLine
    show: Callable[[str, bytes], None] | None


Play = Callable[[StartedAgent], Awaitable[int]]


def choose_dialect(line: CommandLine, environment: Environment) -> Dialect:
    """The dialect of this call; raises `StartupError` for an unknown name."""
    variables = environment.variables
    return make_dialect(
        choose_dialect_name(line.dialect, environment.called, line.arguments, variables), __version__, variables
    )


def with_key_from_file(line: CommandLine, environment: Environment) -> CommandLine:
    """The call with the key of `--api-key-file` among its options; raises `StartupError`.

    From stdin exactly one line is read, so that the protocol or a piped prompt may follow.
    """
    file = line.api_key_file
    if file is None:
        return line
    if line.agent.api_key:
        raise UsageError("--api-key-file cannot be combined with --api-key")
    try:
        text = _read_first_line(0) if file == "-" else _read_first_line_of(environment.absolute_path(file))
    except OSError as error:
        raise StartupError(f"--api-key-file {file}: {error.strerror or error}") from None
    key = text.decode("utf-8", "replace").strip()
    if not key:
        raise StartupError(f"--api-key-file {file}: there is no key in the first line")
    if key.startswith("{"):
        raise StartupError(f"--api-key-file {file}: the first line must be the key, but it is JSON")
    return structs.replace(line, agent=structs.replace(line.agent, api_key=key))


def _read_first_line_of(path: str) -> bytes:
    """Reads a file, or a pipe whose writer has a few seconds to write the line."""
    inherited = re.fullmatch(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)", path)
    if inherited:
        # Not opened by that name, which fails for sockets: some hosts pass those as pipes.
        descriptor = os.dup(int(inherited[1] or inherited[2]))
    else:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        return _read_first_line(descriptor, KEY_SECONDS)
    finally:
        os.close(descriptor)


def _read_first_line(descriptor: int, seconds: float | None = None) -> bytes:
    """Reads byte by byte, because what follows belongs to another reader."""
    import select

    line = bytearray()
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    deadline = None if seconds is None else time.monotonic() + seconds
    while ready.poll(None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000):
        byte = os.read(descriptor, 1)
        if byte in (b"", b"\n"):
            return bytes(line)
        line += byte
        if len(line) > LONGEST_KEY:
            raise OSError(errno.EFBIG, f"the first line is longer than {LONGEST_KEY} bytes")
    raise TimeoutError(errno.ETIMEDOUT, f"no complete line arrived within {seconds:g} s")


def run_agent(line: CommandLine, environment: Environment, dialect: Dialect, play: Play, *, is_unwatched: bool) -> int:
    """Claim stdin and stdout, build the agent, print its warnings and `play`; returns the exit code.

    `is_unwatched` is true for modes that run their prompts at once: then an option that neither Pigeon nor an extension
    knows is an error instead of a warning, and so is a model of the settings that cannot be used.
    """
    # Before the loop: it opens descriptors, and would get 0 or 1 where the host closed them.
    descriptors = stdio.claim_stdio()
    return SteadyLoop().run_until_complete(_run_agent(line, environment, dialect, descriptors, play, is_unwatched))


async def _run_agent(
    line: CommandLine,
    environment: Environment,
    dialect: Dialect,
    descriptors: Descriptors,
    play: Play,
    is_unwatched: bool,
) -> int:
    options = line.agent.for_dialect(dialect)
    redactor = Redactor()
    mask_prints(redactor)
    observer = None
    if line.verbose or line.trace is not None:
        from pigeon.frontends.observing import make_observer

        observer = make_observer(line.trace, line.verbose, environment, redactor)
    began = time.monotonic()
    agent = await build(options, environment, redactor, [observer] if observer else ())
    if observer is not None:
        folder = environment.agent_dir(options.agent_dir)
        observer.on_agent_built(agent, time.monotonic() - began, folder, not options.no_context_files)
    unknown = _unknown_options(line, agent)
    if unknown and is_unwatched:
        await _close_agent(agent)
        raise UsageError(_unknown_option_text(unknown[0], line, agent))
    if is_unwatched and agent.session.models.problem:
        await _close_agent(agent)
        raise StartupError(agent.session.models.problem)
    for warning in (*(f"unknown option {option} is ignored" for option in unknown), *agent.problems):
        print(f"Warning: {to_printable(warning)}", file=sys.stderr)  # noqa: T201
    # `main` switched the collector off: nothing created during the start is garbage.
    resume_collecting()
    if line.unknown:
        line = structs.replace(line, messages=line.parse_again(agent.known_flags).messages)
    try:
        return await play(StartedAgent(agent, descriptors, line, None if observer is None else observer.line_tracer))
    except UsageError:
        # Checked before the agent does anything, so nothing else has closed it.
        await _close_agent(agent)
        raise


def redirect_streams(output: int) -> None:
    """Make a forked process read nothing and write to this descriptor, which is then closed."""
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)


def mask_prints(redactor: Redactor) -> None:
    """Mask keys in everything that is printed, by us, by the interpreter or by an extension.

    Printed output goes to stderr too, because the protocol has the real stdout.
    """

    def mask_text(text: str) -> str:
        return redactor.mask_text(mask_addresses(text))

    if sys.stderr is not None:
        sys.stderr = cast("TextIO", RedactedText(sys.stderr, mask_text))
    if sys.stdout is not None:
        sys.stdout = cast("TextIO", RedactedText(sys.stdout, mask_text))


def refuse_unknown_options(line: CommandLine, environment: Environment) -> None:
    """Raise `UsageError` for an unknown option; an agent is built to find out, and closed again."""

    async def check_options() -> None:
        agent = await build(structs.replace(line.agent, no_session=True, resume=None), environment)
        await _close_agent(agent)
        unknown = _unknown_options(line, agent)
        if unknown:
            raise UsageError(_unknown_option_text(unknown[0], line, agent))

    SteadyLoop().run_until_complete(check_options())


async def _close_agent(agent: BuiltAgent) -> None:
    await agent.lifecycle.close_extensions()
    await agent.session.close()
    await agent.lifecycle.stop()


def _unknown_options(line: CommandLine, agent: BuiltAgent) -> list[str]:
    known = {f"--{name}" for name in agent.known_flags}
    # Without a value, which may be a key behind a misspelt name.
    return [name for name in (option.partition("=")[0] for option in line.unknown) if name not in known]


def _unknown_option_text(option: str, line: CommandLine, agent: BuiltAgent) -> str:
    from pigeon.frontends.printing import did_you_mean

    known = [*line.known, *(f"--{name}" for name in agent.known_flags)]
    text = f"Unknown option {option}.{did_you_mean(option, known)} `pigeon --help` lists the options"
    return f"{text}; put a prompt that begins with a dash after --"
