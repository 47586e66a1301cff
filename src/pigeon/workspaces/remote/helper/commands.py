"""Commands, as the helper runs them: each under a reaper, which ends everything that it started."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
import time

from pigeon.workspaces.remote.helper.files import decode_bytes, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

    from pigeon.workspaces.remote.helper.serving import Helper

    Record = dict[str, Any]

PIPE = 64 * 1024
WINDOW = 1 << 20
PIPE_GRACE = 0.1
GIVE_UP_AFTER = 5.0
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
IS_LINUX = sys.platform.startswith("linux")


def call_prctl(option: int, value: int) -> None:
    """Set a property of this process, where the system has it."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def list_children() -> dict[int, list[int]]:
    """The processes of this machine by parent."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            table.setdefault(parent, []).append(int(name))
    return table


def kill_below(spared: Iterable[int] = ()) -> bool:
    """Kill everything below this process; returns False if there was nothing. A subreaper has them all below it."""
    try:
        table = list_children()
    except OSError:
        return False
    level = [pid for pid in table.get(os.getpid(), []) if pid not in spared]
    found = level[:]
    while level:
        level = [child for pid in level for child in table.get(pid, [])]
        found.extend(level)
    for pid in found:
        send_signal(pid, signal.SIGKILL)
    return bool(found)


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def send_signal_to_group(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, number)


def close_others(kept: Iterable[int]) -> None:
    kept = set(kept)
    try:
        names = os.listdir("/proc/self/fd" if IS_LINUX else "/dev/fd")
        descriptors = [int(name) for name in names if name.isdigit()]
    except OSError:
        descriptors = list(range(1024))
    for descriptor in descriptors:
        if descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class Reaper:
    """What runs in a process of its own: one command, its end, and the end of everything that it started."""

    def __init__(self, request: Record, work: Callable[[], int] | None, control: int, report: int) -> None:
        self.request = request
        self.work = work
        self.control = control
        self.report = report
        self.command = 0
        self.code: int | None = None

    def run(self, stdin: int, stdout: int, stderr: int) -> NoReturn:
        try:
            os.setsid()
            call_prctl(PR_SET_CHILD_SUBREAPER, 1)
            close_others({0, 1, 2, self.control, self.report, stdin, stdout, stderr})
            wake_read, wake_write = os.pipe()
            os.set_blocking(wake_write, False)
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
            signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
            self.start_command(stdin, stdout, stderr)
            for descriptor in {stdin, stdout, stderr} - {0, 1, 2}:
                os.close(descriptor)
            self.wait(wake_read)
        finally:
            os._exit(0)

    def start_command(self, stdin: int, stdout: int, stderr: int) -> None:
        error_read, error_write = os.pipe()
        parent = os.getpid()
        self.command = os.fork()
        if self.command == 0:
            self.become_command(parent, error_write, stdin, stdout, stderr)
        os.close(error_write)
        mistake = os.read(error_read, 4096)
        os.close(error_read)
        if mistake:
            os.waitpid(self.command, 0)
            self.tell(json.loads(mistake))
            os._exit(0)
        self.tell({"started": self.command})

    def become_command(self, parent: int, errors: int, stdin: int, stdout: int, stderr: int) -> NoReturn:
        stage = "folder"
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            os.chdir(decode_bytes(self.request["cwd"]))
            stage = "program"
            for index, descriptor in enumerate((stdin, stdout, stderr)):
                os.dup2(descriptor, index, inheritable=True)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            if self.work is not None:
                close_others({0, 1, 2})
                os._exit(self.work())
            if IS_LINUX:
                call_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:
                    os._exit(137)
            argv = [decode_bytes(word) for word in self.request["argv"]]
            os.execve(argv[0], argv, make_variables(self.request))
        except OSError as error:
            write_all(errors, json.dumps({"errno": error.errno, "stage": stage}).encode())
        except ValueError:
            write_all(errors, json.dumps({"errno": errno.EINVAL, "stage": stage}).encode())
        finally:
            os._exit(126)

    def wait(self, wake: int) -> None:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            if not self.reap():
                if self.code is not None:
                    self.tell({"gone": True})
                return
            ready = dict(poll.poll(1000))
            if wake in ready:
                os.read(wake, 4096)
            if self.control in ready:
                order = os.read(self.control, 1)
                if order == b"t":
                    send_signal_to_group(self.command, signal.SIGTERM)
                    continue
                self.kill_everything()
                self.tell({"gone": True})
                return

    def reap(self) -> bool:
        """Note what has ended; returns False when nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.command:
                self.code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                self.tell({"exit": self.code})

    def kill_everything(self) -> None:
        give_up_at = time.monotonic() + GIVE_UP_AFTER
        pause = 0.001
        while time.monotonic() < give_up_at:
            if self.code is None:
                send_signal_to_group(self.command, signal.SIGKILL)
            kill_below()
            if not self.reap():
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def tell(self, record: Record) -> None:
        with contextlib.suppress(OSError):
            write_all(self.report, json.dumps(record).encode() + b"\n")


def make_variables(request: Record) -> dict[bytes, bytes]:
    variables = dict(os.environb)
    for name, value in request.get("variables", {}).items():
        variables[name.encode()] = value.encode("utf-8", "surrogateescape")
    return variables


class RemoteCommand:
    """A command or a search, as the helper sees it: its reaper, its output on the way to Pigeon, its input."""

    def __init__(self, helper: Helper, number: int, request: Record, work: Callable[[], int] | None) -> None:
        self.helper = helper
        self.number = number
        self.window = WINDOW
        self.input: list[bytes] = []
        self.input_ends = False
        self.exit_code: int | None = None
        self.end_sent = False
        self.is_paused = False
        self.quiet_since: float | None = None
        self._start(request, work)

    def _start(self, request: Record, work: Callable[[], int] | None) -> None:
        control_read, self.control = os.pipe()
        self.report, report_write = os.pipe()
        self.output, output_write = os.pipe()
        stdin, self.stdin = os.pipe() if request.get("input") else (os.open(os.devnull, os.O_RDONLY), -1)
        given = (control_read, report_write, output_write, stdin)
        try:
            self.reaper = os.fork()
            if self.reaper == 0:
                Reaper(request, work, control_read, report_write).run(stdin, output_write, output_write)
        finally:
            for descriptor in given:
                os.close(descriptor)
        self._unread = b""
        for descriptor in (self.report, self.output, self.stdin):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)
        self.helper.watch(self.report, self.on_report)
        self.helper.watch(self.output, self.on_output)

    def on_report(self, events: int) -> None:
        try:
            data = os.read(self.report, 4096)
        except BlockingIOError:
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._on_record(json.loads(line))
        if not data:
            self._on_reaper_ended()

    def _on_record(self, record: Record) -> None:
        if "errno" in record:
            self.end_sent = True
            number = record["errno"] or 0
            self.helper.fail(self.number, OSError(number, os.strerror(number)), record["stage"])
        elif "exit" in record:
            self.exit_code = record["exit"]
            self.quiet_since = time.monotonic()

    def _on_reaper_ended(self) -> None:
        """Nothing is left, or the reaper was killed: then what it had below it is ours, and is killed too."""
        if self.exit_code is None:
            self.exit_code = 137
            kill_below(self.helper.reapers())
        if self.quiet_since is None:
            self.quiet_since = time.monotonic()
        self.helper.unwatch(self.report)
        os.close(self.report)
        os.close(self.control)
        self.control = self.report = -1
        self._close_input()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.reaper, 0)
        self._report_if_over()

    def on_output(self, events: int) -> None:
        if self.window <= 0 or self.helper.is_congested():
            self.is_paused = True
            self.helper.unwatch(self.output)
            return
        try:
            data = os.read(self.output, PIPE)
        except BlockingIOError:
            return
        if data:
            self.window -= len(data)
            if self.quiet_since is not None:
                self.quiet_since = time.monotonic()
            self.helper.send({"type": "output", "id": self.number}, data)
        else:
            self._close_output()
            self._report_if_over()

    def add_credit(self, size: int) -> None:
        """So much of the output was consumed: more may be sent."""
        self.window += size
        self.resume()

    def resume(self) -> None:
        if self.output >= 0 and self.window > 0 and self.is_paused:
            self.is_paused = False
            self.helper.watch(self.output, self.on_output)

    def tick(self, now: float) -> None:
        """After the command has ended, a silence counts as the end of the output, whatever still holds the pipe."""
        if self.output < 0 or self.quiet_since is None or self.is_paused:
            return
        if now - self.quiet_since >= PIPE_GRACE:
            self._close_output()
            self._report_if_over()

    def _close_output(self) -> None:
        if self.output >= 0:
            self.helper.unwatch(self.output)
            os.close(self.output)
            self.output = -1

    def _report_if_over(self) -> None:
        if self.output < 0 and self.exit_code is not None and not self.end_sent:
            self.end_sent = True
            self.helper.send({"type": "ended", "id": self.number, "exitCode": self.exit_code})
        if self.end_sent and self.control < 0:
            self._close_output()
            self.helper.send({"type": "gone", "id": self.number})
            self.helper.forget_command(self)

    def add_input(self, data: bytes, ends: bool) -> None:
        if self.stdin < 0:
            self._report_input(len(data))
            return
        if data:
            self.input.append(data)
        self.input_ends = self.input_ends or ends
        self.helper.watch(self.stdin, self.on_input, select.POLLOUT)

    def on_input(self, events: int) -> None:
        if not self.input:
            self.helper.unwatch(self.stdin)
            if self.input_ends:
                self._close_input()
            return
        try:
            written = os.write(self.stdin, self.input[0])
        except BlockingIOError:
            return
        except OSError:
            # The command does not read any more: the rest is taken and thrown away.
            self._report_input(sum(map(len, self.input)))
            self._close_input()
            return
        self.input[0] = self.input[0][written:]
        if not self.input[0]:
            del self.input[0]
        self._report_input(written)

    def _report_input(self, size: int) -> None:
        if size:
            self.helper.send({"type": "taken", "id": self.number, "bytes": size})

    def _close_input(self) -> None:
        if self.stdin >= 0:
            self.helper.unwatch(self.stdin)
            os.close(self.stdin)
            self.stdin = -1
            self.input = []

    def order(self, letter: bytes) -> None:
        if self.control >= 0:
            with contextlib.suppress(OSError):
                os.write(self.control, letter)
