"""The entry point: decides what to do, and imports only what that needs."""

from __future__ import annotations

import errno
import gc
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

from pigeon import __version__
from pigeon.transport import exit_codes

# The versions whose protocol is spoken. Clients look at them and expect the number alone (omp itself says omp/18.3.4).
SPOKEN_VERSIONS = {"pi": "1.5.0", "omp": "18.3.4"}
PR_SET_DUMPABLE = 4
NO_MODE = "Choose a mode: --mode rpc to serve a host program, --mode json to run one prompt (see pigeon --help)"


def main() -> NoReturn:
    """Run the program and leave with its exit code."""
    # Nothing that a start makes is garbage: looking for some costs time. A mode that serves switches it on again.
    gc.disable()
    _hide_from_other_processes()
    _use_utf8()
    try:
        code = _run_from(*sys.argv)
    except BrokenPipeError:
        os._exit(exit_codes.FAILED)
    except OSError as error:
        code = _failed(": ".join(str(part) for part in (error.filename, error.strerror) if part) or str(error))
    _leave(code)


def _run_from(program: str, *arguments: str) -> int:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed, and what Pigeon has to say would be lost", "stdout")
    if list(arguments) in (["--version"], ["-v"]):
        return _print_version(program)
    if arguments[:1] == ("schema",):
        return _print_schema()
    _take_all_signals()
    _import_msgspec()
    from pigeon.wire.errors import StartupError

    try:
        return _run(program, list(arguments))
    except StartupError as error:
        return _failed(error)


def _failed(reason: object) -> int:
    """Say why on stderr, if there is one."""
    from pigeon.wire.errors import printable

    with suppress(OSError):
        if sys.stderr is not None:
            print(f"Error: {printable(reason)}", file=sys.stderr)  # noqa: T201
    return exit_codes.FAILED


def _use_utf8() -> None:
    """Names of files and texts of the protocol are UTF-8, whatever the locale and the variables of Python say.

    Only the interpreter can decide about names, and only at its start; so it is started once more. Its own option is
    not inherited by commands, as a variable would be.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        # A stream that was in use before and cannot be rewound stays as it is.
        with suppress(OSError):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding="utf-8", errors=errors)


def _hide_from_other_processes() -> None:
    """Keep processes of the same user, which commands are, from reading our environment and memory in /proc.

    Before anything is read: there is no moment in which a key could be seen. `ctypes` would cost four times as much, so
    its core is called; where that is different, nothing is hidden before the first command (`system/process/pool`).
    """
    if sys.platform.startswith("linux"):
        with suppress(ImportError, AttributeError, OSError, TypeError, ValueError):
            import _ctypes

            prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
            _ctypes.call_function(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0))


def _take_all_signals() -> None:
    """Undo what the host has left us: with SIGCHLD ignored no child could be waited for, and a blocked SIGTERM would
    never arrive. Before there are threads, which inherit the mask."""
    import signal

    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _import_msgspec() -> None:
    """Import it without `typing_extensions`, which costs 3 % of a start.

    It is only there because other libraries want it; what msgspec takes from it is in `typing` since Python 3.11.
    """
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        import msgspec  # noqa: F401

        del sys.modules["typing_extensions"]


def _run(program: str, arguments: list[str]) -> int:
    from pigeon.app.environment import process_environment
    from pigeon.cli.args import parse, parser
    from pigeon.dialects.choice import family_name
    from pigeon.wire.errors import StartupError

    line = parse(arguments, program)
    if line.version:
        return _print_version(program)
    if line.help:
        print(parser().format_help())  # noqa: T201
        return exit_codes.OK
    environment = process_environment(family_name(program) or "", _pick)
    if line.list_models is not None:
        from pigeon.cli.list_models import run_list_models

        return run_list_models(line.list_models, environment)
    if line.export:
        from pigeon.app.export_page import export_file

        print(f"Exported to: {export_file(environment, *line.export[:2])}")  # noqa: T201
        return exit_codes.OK
    if line.no_ui and line.mode not in ("rpc", "rpc-ui"):
        raise StartupError("--no-ui requires --mode rpc")
    if line.mode == "json":
        from pigeon.cli.json_mode import run_json

        return run_json(line, environment)
    if line.mode in ("rpc", "rpc-ui"):
        from pigeon.cli.rpc_mode import run_rpc

        return run_rpc(line, environment)
    if line.mode is None and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        from pigeon.cli.chat_mode import run_chat

        return run_chat(line, environment)
    raise StartupError(NO_MODE)


def _pick(folder: str) -> str:
    from pigeon.cli.picker import pick

    return pick(folder)


def _print_version(program: str) -> int:
    """Our own, unless the program was called like an agent whose clients check the version of their protocol."""
    print(SPOKEN_VERSIONS.get(os.path.basename(program), __version__))  # noqa: T201
    return exit_codes.OK


def _print_schema() -> int:
    import json

    from pigeon.wire.schema import protocol_schema

    print(json.dumps(protocol_schema(), indent=2))  # noqa: T201
    return exit_codes.OK


def _leave(code: int) -> NoReturn:
    """End now: threads that are stuck, as an extension's may be, must not keep the process alive."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        code = _failed(f"stdout: {error.strerror}")
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    os._exit(code)
