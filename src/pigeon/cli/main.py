"""The entry point: what concerns the process as a whole, before and after the work that `running.py` selects.

Next to nothing is imported here, because a call that a warm parent runs ends here, too; and nothing that only exists on
Linux and macOS: on Windows the program must be able to report that.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

# The protocol versions that are reported. Clients check them and expect the number alone (omp itself prints
# omp/18.3.4).
SPOKEN_VERSIONS = {"pi": "1.5.0", "pi-0.73": "0.73.1", "omp": "18.3.4"}
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
FAILED = 1


def main() -> NoReturn:
    """Run the program and exit with its exit code."""
    _end_on_interrupt()
    _refuse_windows()
    # Nothing created during the start is garbage, and searching for some costs time. A serving mode turns the collector
    # on again.
    gc.disable()
    name_process()
    _hand_over_to_warm_parent()
    _hide_from_other_processes()
    run_to_end()


def run_to_end(report_exit: Callable[[int], None] = lambda code: None) -> NoReturn:
    """Run the program of this process, whose arguments, streams and variables are in place; `report_exit` is called
    with the exit code, unless a signal ends the process."""
    _replace_closed_stderr()
    _restart_in_utf8_mode()
    try:
        code = _run_program(*sys.argv)
    except BrokenPipeError:
        report_exit(FAILED)
        os._exit(FAILED)
    except OSError as error:
        code = _report_failure(": ".join(str(part) for part in (error.filename, error.strerror) if part) or str(error))
    except KeyboardInterrupt:
        # Here, while the interrupted frames still exist: a half-made event loop complains when it is collected.
        _exit_now(130, report_exit)
    _exit_now(code, report_exit)


def _hand_over_to_warm_parent() -> None:
    """Returns unless a warm parent has run this call."""
    if sys.platform == "linux":
        from pigeon.system.process.warm.call import hand_over

        hand_over(_hide_from_other_processes)


def _refuse_windows() -> None:
    if sys.platform != "linux":
        from pigeon.system.platforms import unsupported_reason

        why = unsupported_reason()
        if why is not None:
            sys.exit(f"Error: {why}")


def _end_on_interrupt() -> None:
    """Let Ctrl-C end the process itself while it starts.

    As an exception it could come in the middle of any import, where it may be lost and leaves modules half made. Code
    that has to end cleanly restores the exception (`raise_on_interrupt`), or handles the signal in its event loop.
    """
    # The part of `signal` that is available without an import that could be interrupted.
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _run_program(program: str, *arguments: str) -> int:
    if sys.stdout is None:
        import errno

        raise OSError(errno.EBADF, "it is closed, so output would be lost", "stdout")
    if list(arguments) in (["--version"], ["-v"]):
        return _print_version(program)
    _reset_signals()
    import_msgspec()
    from pigeon.cli.running import run
    from pigeon.transport import exit_codes
    from pigeon.wire.errors import StartupError, UsageError

    try:
        code = run(program, list(arguments))
        return _print_version(program) if code is None else code
    except UsageError as error:
        return _report_failure(error, exit_codes.USAGE)
    except StartupError as error:
        return _report_failure(error)


def _report_failure(reason: object, code: int = FAILED) -> int:
    """Print the reason on stderr, if there is one."""
    from pigeon.wire.errors import to_printable

    try:
        if sys.stderr is not None:
            print(f"Error: {to_printable(reason)}", file=sys.stderr)  # noqa: T201
    except OSError:
        pass
    return code


def _replace_closed_stderr() -> None:
    """If stderr is closed, occupy its number: a file that got it would receive every error message."""
    try:
        os.fstat(2)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != 2:
            os.dup2(null, 2)
            os.close(null)
        os.set_inheritable(2, True)


def _restart_in_utf8_mode() -> None:
    """Names of files and texts of the protocol are UTF-8, whatever the locale and the variables of Python say.

    Only the interpreter can decide about names, and only at its start; so it is restarted once. Its own option is not
    inherited by commands, as a variable would be.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        # One that is no stream of text, or was used before and cannot be rewound, stays as it is.
        try:
            stream.reconfigure(encoding="utf-8", errors=errors)  # type: ignore[union-attr]
        except (AttributeError, OSError):
            continue


def _hide_from_other_processes() -> None:
    """Keep processes of the same user, which commands are, from reading our environment and memory in /proc.

    Called before anything is read, so that there is no moment in which a key could be seen. `ctypes` would cost four
    times as much, so its core is called; where that is different, nothing is hidden before the first command
    (`system/process/pool`).
    """
    _call_prctl(PR_SET_DUMPABLE, 0)


def name_process() -> None:
    """Have `pgrep pigeon` and `top` show the name of the program: they would show that of Python, which `bin/pigeon`
    has become."""
    program = os.path.basename(sys.argv[0])
    if not program.startswith(("-", "_")):  # `python -c`, and `__main__.py` of `python -m`
        _call_prctl(PR_SET_NAME, os.fsencode(program))


def _call_prctl(option: int, value: int | bytes) -> None:
    if sys.platform.startswith("linux"):
        try:
            import _ctypes

            prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
            _ctypes.call_function(prctl, (option, value, 0, 0, 0))
        except (ImportError, AttributeError, OSError, TypeError, ValueError):
            return


def _reset_signals() -> None:
    """Undo inherited signal settings: with SIGCHLD ignored no child could be waited for, and a blocked SIGTERM would
    never arrive. Called before there are threads, which inherit the mask."""
    import signal

    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def import_msgspec() -> None:
    """Import msgspec without two modules that cost 5 % of a start.

    `typing_extensions` is only installed for other libraries; what msgspec uses of it has been in `typing` since Python
    3.11. `platform` tells the module `uuid`, which msgspec imports, the name of the system.
    """
    system = type(sys)("platform")
    system.system = lambda: os.uname().sysname  # type: ignore[attr-defined]
    replaced = {"typing_extensions": None, "platform": system}
    replaced = {name: module for name, module in replaced.items() if name not in sys.modules}
    sys.modules.update(replaced)  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401
    finally:
        for name in replaced:
            del sys.modules[name]


def _print_version(program: str) -> int:
    """Print our own version, unless the program was called like an agent whose clients check the version of their
    protocol."""
    from pigeon import __version__

    print(SPOKEN_VERSIONS.get(os.path.basename(program), __version__))  # noqa: T201
    return 0


def _exit_now(code: int, report_exit: Callable[[int], None]) -> NoReturn:
    """Exit now: stuck threads, such as an extension's, must not keep the process alive."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        # The code of an earlier failure tells more.
        code = code or _report_failure(f"stdout: {error.strerror}")
    try:  # noqa: SIM105 - without importing `contextlib`
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    report_exit(code)
    os._exit(code)
