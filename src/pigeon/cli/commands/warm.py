"""`pigeon warm`: starts, lists and ends the warm parents of this user, from which calls of `pigeon` are forked."""

from __future__ import annotations

import fcntl
import math
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from pigeon.config.layers import Layers
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import format_table, print_line
from pigeon.system.append_file import make_private_folder
from pigeon.system.process.messages import receive, send
from pigeon.system.process.pool import show_to_own_user
from pigeon.system.process.warm.call import WARM_FOLDER, connect, connect_to, open_warm_folder
from pigeon.system.process.warm.callers import CallerCheck
from pigeon.system.process.warm.link import SUFFIX, StatusRequest, StopServer, WarmStatus, describe_interpreter
from pigeon.system.process.warm.start import ParentFailed, start_parent
from pigeon.transport import exit_codes
from pigeon.wire.errors import StartupError, UsageError

LOCK = "lock"


def run_warm(call: CommandCall) -> int:
    """Start a parent, unless there is one for this interpreter; or list or end those there are."""
    if call.has_option("parent"):
        from pigeon.cli.warm_parent import run_warm_parent

        run_warm_parent(int(call.options["parent"]), _parse_minutes(call) * 60)
    if sys.platform != "linux":
        raise StartupError("Warm starts need Linux; on this system every call starts by itself")
    show_to_own_user()
    chosen = [f"--{name.replace('_', '-')}" for name in ("status", "stop", "idle_minutes") if call.has_option(name)]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} cannot be used together")
    if call.has_option("stop") or call.has_option("status"):
        return _stop_parents() if call.has_option("stop") else _list_parents()
    return _start_parent(call)


def _start_parent(call: CommandCall) -> int:
    minutes = _parse_minutes(call)
    refusal = CallerCheck().refuses_all
    if refusal:
        raise StartupError(f"No warm start is possible: {refusal}")
    with _locked_folder() as folder:
        facts = _describe_interpreter()
        try:
            connect(folder, facts).close()
        except OSError:
            try:
                pid = start_parent(folder, minutes)
                connect(folder, facts).close()
            except ParentFailed as error:
                raise StartupError(f"The warm parent did not start: {error}") from None
            except OSError:
                raise StartupError("The warm parent takes no calls: it runs with other code or variables") from None
            print_line(f"Calls of pigeon start warm now, from process {pid}; it ends after {minutes:g} idle minutes.")
            return exit_codes.OK
    print_line("Calls of pigeon start warm already; see: pigeon warm --status")
    return exit_codes.OK


def _describe_interpreter() -> bytes:
    try:
        return describe_interpreter()
    except ValueError as error:
        raise StartupError(f"No warm start is possible: {error}") from None


@contextmanager
def _locked_folder() -> Iterator[int]:
    """The folder of the sockets, created if need be, for one `pigeon warm` at a time."""
    path = os.path.join(os.environ.get("HOME", ""), WARM_FOLDER)
    if not os.path.isabs(path):
        raise StartupError("HOME must be an absolute path: the socket of a warm parent is in a folder there")
    try:
        make_private_folder(path)
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}") from None
    folder = open_warm_folder(os.environ["HOME"])
    if folder is None:
        raise StartupError(f"{path} must be a folder of yours that no other user can enter: chmod 700 it, or remove it")
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(lock)
    finally:
        os.close(folder)


def _parse_minutes(call: CommandCall) -> float:
    """The idle minutes after which the parent ends: those of the option, else of the settings."""
    asked = call.options.get("idle_minutes")
    if asked is None:
        environment = call.environment
        return Layers(environment.agent_dir(), lambda problem: None).settings.warm.idle_minutes
    try:
        minutes = float(asked)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise UsageError(f'--idle-minutes must be a number above 0; got "{asked}"')
    return minutes


def _list_parents() -> int:
    rows = [("PROCESS", "FINISHED", "RUNNING", "AGE", "ENDS IN")]
    for status in _ask_all():
        left = "-" if status.running else _format_minutes(status.idle_limit - status.idle)
        rows.append((str(status.pid), str(status.calls), str(status.running), _format_minutes(status.age), left))
    if len(rows) == 1:
        print_line("There is no warm parent; `pigeon warm` starts one.")
        return exit_codes.FAILED
    print_line(format_table(rows))
    return exit_codes.OK


def _stop_parents() -> int:
    stopped = [status.pid for status in _ask_all(stops=True)]
    print_line(f"Ended {len(stopped)} warm parent{'' if len(stopped) == 1 else 's'}; what they started goes on.")
    return exit_codes.OK


def _ask_all(stops: bool = False) -> Iterator[WarmStatus]:
    """What the parents of this user answer; they are told to end if it `stops`."""
    folder = open_warm_folder(os.environ.get("HOME", ""))
    if folder is None:
        return
    try:
        for name in sorted(os.listdir(folder)):
            if not name.endswith(SUFFIX):
                continue
            try:
                with closing(connect_to(folder, name)) as link:
                    send(link, StatusRequest())
                    status, _ = receive(link)
                    if stops:
                        send(link, StopServer())
                        receive(link)
            except OSError:
                continue
            if isinstance(status, WarmStatus):
                yield status
    finally:
        os.close(folder)


def _format_minutes(seconds: float) -> str:
    return f"{max(0.0, seconds) / 60:.0f} min"
