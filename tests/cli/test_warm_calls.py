"""Calls that a warm parent runs: each does what it does without one, byte for byte, and ends in the same way."""

from __future__ import annotations

import contextlib
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.agent_process import command_line
from support.processes import eventually
from support.warm_calls import (
    SECONDS,
    WarmHome,
    ask,
    end,
    is_alive,
    ready_agent,
    state_of,
    warm_home,
    without_changes,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="warm starts need Linux")
DEMO = ("--model", "demo", "--no-session")
RPC_LINES = (
    b'{"id":"1","type":"get_state"}\n{"id":"2","type":"nonsense"}\n{not json\n'
    b'{"id":"3","type":"get_available_models"}\n{"id":"4","type":"bash","command":"echo one; exit 3"}\n'
    b'{"id":"5","type":"set_event_filter","events":5}\n{"id":"6","type":"get_messages"}\n'
)
ACP_LINES = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
# What a command sees of the process that it descends from.
SURROUNDINGS = (
    "umask; nice; ulimit -a; pwd; env | sort; grep -E 'Sig(Ign|Blk)' /proc/self/status; ls -l /proc/$PPID/fd | wc -l"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmHome]:
    with warm_home(tmp_path_factory.mktemp("warm")) as made:
        yield made


@pytest.fixture
def cold(home: WarmHome) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Makes calls start by themselves meanwhile: the parent is not found."""

    @contextlib.contextmanager
    def without_parent() -> Iterator[None]:
        away = home.folder.with_name("away")
        home.folder.rename(away)
        try:
            yield
        finally:
            away.rename(home.folder)

    return without_parent


Cold = Callable[[], contextlib.AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("arguments", "piped"),
    [
        pytest.param(("-p", *DEMO, "hello"), b"", id="answer"),
        pytest.param(("-p", *DEMO), b"list the files\n", id="piped prompt"),
        pytest.param((), b"list the files\n", id="nothing but a pipe"),
        pytest.param(("-p", *DEMO), b"", id="no prompt"),
        pytest.param(("-p", *DEMO, "--output", "json", "hello"), b"", id="one object"),
        pytest.param(("-p", *DEMO, "--output", "stream-json", "list the files"), b"", id="events"),
        pytest.param(("--mode", "json", *DEMO, "hello"), b"", id="json mode"),
        pytest.param(("-p", "--model", "nosuch/model", "hello"), b"", id="unknown model"),
        pytest.param(("-p", *DEMO, "--nonsense", "hello"), b"", id="unknown option"),
        pytest.param(("-p", *DEMO, "--max-turns", "1", "list the files"), b"", id="limit"),
        pytest.param(("--mode", "rpc", *DEMO), RPC_LINES, id="rpc"),
        pytest.param(("--mode", "rpc", *DEMO, "--dialect", "pi-latest"), RPC_LINES, id="rpc of another dialect"),
        pytest.param(("--mode", "rpc", *DEMO, "--api-key-file", "/nowhere"), b"", id="rpc that cannot start"),
        pytest.param(("acp", "--model", "demo"), ACP_LINES, id="acp"),
    ],
)
def test_output_and_exit_code_are_the_same(
    home: WarmHome, cold: Cold, arguments: tuple[str, ...], piped: bytes
) -> None:
    with cold():
        expected = home.call(*arguments, input=piped)
    before = home.finished
    found = home.call(*arguments, input=piped)
    assert without_changes(found.stdout) == without_changes(expected.stdout)
    assert without_changes(found.stderr) == without_changes(expected.stderr)
    assert found.returncode == expected.returncode
    assert eventually(lambda: home.finished == before + 1), "it did not run warm"


def test_a_wrong_command_line_is_reported_as_ever(home: WarmHome, cold: Cold) -> None:
    with cold():
        expected = home.call("-p", "--thinking", "hello", "--max-turns", "x")
    found = home.call("-p", "--thinking", "hello", "--max-turns", "x")
    assert (found.returncode, found.stdout, found.stderr) == (2, expected.stdout, expected.stderr)


def test_commands_and_the_version_start_by_themselves(home: WarmHome, cold: Cold) -> None:
    before = home.finished
    for arguments in (("--version",), ("--help",), ("sessions",), ("help", "warm"), ("--list-models",)):
        with cold():
            expected = home.call(*arguments)
        assert home.call(*arguments).stdout == expected.stdout
    assert home.finished == before


def _surroundings(home: WarmHome, **more: object) -> bytes:
    agent = ready_agent(home, **more)
    found = ask(agent, b'{"type":"bash","command":"%s"}' % SURROUNDINGS.encode())
    assert end(agent) == 0
    return without_changes(found)


def _prepare() -> None:
    """What a host may do to a process between fork and exec."""
    os.umask(0o027)
    os.nice(3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})


def test_commands_see_the_callers_surroundings(home: WarmHome, cold: Cold) -> None:
    before = home.finished
    for more in ({}, {"preexec_fn": _prepare}, {"env": {"MARK": "one two", "EMPTY": ""}}):
        with cold():
            expected = _surroundings(home, **more)
        assert _surroundings(home, **more) == expected
    assert eventually(lambda: home.finished == before + 3)


def test_inherited_descriptors_keep_their_numbers(home: WarmHome) -> None:
    before = home.finished
    for number in (44, 77, 250):
        reading, writing = os.pipe()
        os.write(writing, b"{no key")
        os.close(writing)
        ran = home.call(
            *("-p", *DEMO, "--api-key-file", f"/dev/fd/{number}", "hello"),
            preexec_fn=partial(os.dup2, reading, number),
            close_fds=False,
        )
        os.close(reading)
        assert ran.returncode == 1
        assert b"/dev/fd/%d: the first line must be the key, but it is JSON" % number in ran.stderr
    assert eventually(lambda: home.finished == before + 3)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_closed_streams_stay_closed(home: WarmHome, cold: Cold, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    call = ("-p", *DEMO, "hello")
    with cold():
        expected = home.call(*call, preexec_fn=close)
    found = home.call(*call, preexec_fn=close)
    assert (found.returncode, found.stdout, found.stderr) == (expected.returncode, expected.stdout, expected.stderr)


def test_output_that_cannot_be_written_fails_in_the_same_way(home: WarmHome, cold: Cold) -> None:
    codes = []
    for context in (cold(), contextlib.nullcontext()):
        with context, open("/dev/full", "wb") as full:
            ran = home.call("-p", *DEMO, "hello", stdout=full, stderr=subprocess.PIPE)
            codes.append((ran.returncode, ran.stderr))
            reading, writing = os.pipe()
            os.close(reading)
            ran = home.call("-p", *DEMO, "hello", stdout=writing, stderr=subprocess.PIPE)
            os.close(writing)
            codes.append((ran.returncode, ran.stderr))
    assert codes[:2] == codes[2:]


def test_a_folder_that_was_removed_is_no_folder(home: WarmHome, cold: Cold, tmp_path: Path) -> None:
    def remove() -> None:
        os.rmdir(os.getcwd())

    found = []
    for context in (cold(), contextlib.nullcontext()):
        gone = tmp_path / "gone"
        gone.mkdir()
        with context:
            ran = home.call("-p", *DEMO, "hello", cwd=gone, preexec_fn=remove)
        found.append((ran.returncode, ran.stdout, ran.stderr))
    assert found[0] == found[1]


# Signals and ends

DEADLY = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGALRM", "SIGVTALRM", "SIGRTMIN", "SIGABRT")


@pytest.mark.parametrize("name", DEADLY)
def test_a_signal_ends_both_processes_as_it_ends_one(home: WarmHome, cold: Cold, name: str) -> None:
    number = getattr(signal, name)
    with cold():
        agent = ready_agent(home)
        agent.send_signal(number)
        expected = agent.wait(SECONDS)
        end(agent)
    agent = ready_agent(home)
    (forked,) = home.forked()
    agent.send_signal(number)
    assert agent.wait(SECONDS) == expected
    end(agent)
    assert not is_alive(forked)


def test_signals_that_are_ignored_stay_ignored(home: WarmHome) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    agent = ready_agent(home, preexec_fn=ignore)
    agent.send_signal(signal.SIGUSR1)
    assert b'"success":true' in ask(agent, b'{"type":"get_state"}')
    assert end(agent) == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_a_script_ignores_still_ends_the_mode_that_handles_it(
    home: WarmHome, cold: Cold, name: str
) -> None:
    number = getattr(signal, name)

    def ignore() -> None:
        signal.signal(number, signal.SIG_IGN)

    found = []
    for context in (cold(), contextlib.nullcontext()):
        with context:
            agent = ready_agent(home, preexec_fn=ignore)
            agent.send_signal(number)
            found.append(agent.wait(SECONDS))
            end(agent)
    assert found[0] == found[1]


def test_a_killed_caller_takes_everything_with_it(home: WarmHome) -> None:
    agent = ready_agent(home)
    (forked,) = home.forked()
    assert agent.stdin is not None
    agent.stdin.write(b'{"type":"bash","command":"echo $PPID; exec sleep 1000"}\n')
    assert eventually(lambda: bool(_children_of(forked)))
    helpers = _children_of(forked)
    agent.kill()
    assert end(agent) == -signal.SIGKILL
    assert eventually(lambda: not is_alive(forked))
    assert eventually(lambda: not any(map(is_alive, helpers)))
    assert home.status() is not None


def test_even_a_stopped_process_ends_with_its_caller(home: WarmHome) -> None:
    agent = ready_agent(home)
    (forked,) = home.forked()
    os.kill(forked, signal.SIGSTOP)
    agent.kill()
    end(agent)
    assert eventually(lambda: not is_alive(forked))


def test_a_killed_process_ends_its_caller_in_the_same_way(home: WarmHome) -> None:
    agent = ready_agent(home)
    (forked,) = home.forked()
    os.kill(forked, signal.SIGKILL)
    assert end(agent) == -signal.SIGKILL


def test_a_call_stops_and_continues_with_its_caller(home: WarmHome) -> None:
    # The tests may run where nobody is left to continue what stops: there the kernel stops nothing. A group of its own
    # has a parent in the same session that could.
    agent = ready_agent(home, process_group=0)
    (forked,) = home.forked()
    os.kill(agent.pid, signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(agent.pid, os.WUNTRACED)[1])
    assert eventually(lambda: state_of(forked) == "T")
    os.kill(agent.pid, signal.SIGCONT)
    assert b'"success":true' in ask(agent, b'{"type":"get_state"}')
    os.kill(agent.pid, signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(agent.pid, os.WUNTRACED)[1])
    os.kill(agent.pid, signal.SIGCONT)
    assert end(agent) == 0


def _children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(("ending", "code"), [("input", 0), ("SIGTERM", 143), ("SIGINT", -2), ("SIGQUIT", -3)])
def test_a_call_survives_its_parent_and_ends_as_ever(tmp_path: Path, ending: str, code: int) -> None:
    with warm_home(tmp_path) as home:
        agent = ready_agent(home)
        (forked,) = home.forked()
        os.kill(home.parent, signal.SIGKILL)
        assert eventually(lambda: not is_alive(home.parent))
        assert b'"success":true' in ask(agent, b'{"type":"get_state"}')
        if ending != "input":
            agent.send_signal(getattr(signal, ending))
            agent.wait(SECONDS)
        assert end(agent) == code
        assert eventually(lambda: not is_alive(forked))
        # The socket is still there, and nobody answers.
        assert home.call("-p", *DEMO, "hello").returncode == 0
        home.start()


def test_a_killed_caller_takes_its_process_with_it_when_the_parent_is_gone(tmp_path: Path) -> None:
    with warm_home(tmp_path) as home:
        agent = ready_agent(home)
        (forked,) = home.forked()
        os.kill(home.parent, signal.SIGKILL)
        agent.kill()
        end(agent)
        assert eventually(lambda: not is_alive(forked))


def test_a_parent_that_is_stopped_costs_seconds_and_no_call(tmp_path: Path) -> None:
    with warm_home(tmp_path) as home:
        agent = ready_agent(home)
        os.kill(home.parent, signal.SIGSTOP)
        try:
            assert end(agent) == 0
            assert home.call("-p", *DEMO, "hello").returncode == 0
        finally:
            os.kill(home.parent, signal.SIGCONT)
        # It now finds what was sent to it meanwhile, and that nobody waits.
        assert eventually(lambda: home.finished == 1)


# At a terminal


# A shell with one job: what it runs is the foreground of the terminal; when that stops, it is continued. It reports how
# the job has stopped and ended to the descriptor in its first argument.
SHELL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
report = int(sys.argv[1])
os.set_inheritable(report, False)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for number in (signal.SIGTTOU, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        break
    os.tcsetpgrp(0, os.getpgrp())
    os.write(report, b"stopped by %d;" % os.WSTOPSIG(status))
    os.tcsetpgrp(0, job)
    os.kill(job, signal.SIGCONT)
os.write(report, b"ended with %d" % os.waitstatus_to_exitcode(status))
"""


class Terminal:
    """A call as the foreground job of a shell with a terminal."""

    def __init__(self, home: WarmHome, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.report, theirs = os.pipe()
        words = [sys.executable, "-c", SHELL, str(theirs)]
        self.process = home.open(
            *arguments,
            before=words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=(theirs,),
            start_new_session=False,
        )
        os.close(slave)
        os.close(theirs)
        self.shown = b""

    def read_until(self, text: bytes) -> None:
        while text not in self.shown:
            self.shown += os.read(self.master, 65536)

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def end(self) -> bytes:
        """How the job has stopped and ended."""
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                self.shown += data
        return self.hang_up()

    def hang_up(self) -> bytes:
        os.close(self.master)
        assert self.process.wait(SECONDS) == 0
        with open(self.report, "rb") as file:
            return file.read()


def _interrupted_agent(home: WarmHome, keys: list[bytes]) -> tuple[bytes, bytes]:
    """What an agent at a terminal shows and how it ends when these keys are pressed."""
    terminal = Terminal(home, "--mode", "rpc", *DEMO)
    terminal.press(b'{"type":"get_state"}\n')
    terminal.read_until(b'"command":"get_state"')
    for number, key in enumerate(keys):
        terminal.press(key)
        if key == b"\x1a":
            while os.read(terminal.report, 100) != b"stopped by 20;":
                pass
            terminal.press(b'{"id":"%d","type":"get_messages"}\n' % number)
            terminal.read_until(b'"id":"%d","type":"response"' % number)
    ended = terminal.end()
    return ended, without_changes(terminal.shown)


@pytest.mark.parametrize("keys", [[b"\x03"], [b"\x1c"], [b"\x1a", b"\x03"], [b"\x04"], [b"\x1a", b"\x1a", b"\x04"]])
def test_keys_of_the_terminal_do_the_same(home: WarmHome, cold: Cold, keys: list[bytes]) -> None:
    with cold():
        expected = _interrupted_agent(home, keys)
    before = home.finished
    assert _interrupted_agent(home, keys) == expected
    assert eventually(lambda: home.finished == before + 1)


def test_the_end_of_the_terminal_ends_the_call(home: WarmHome, cold: Cold) -> None:
    codes = []
    for context in (cold(), contextlib.nullcontext()):
        with context:
            terminal = Terminal(home, "--mode", "rpc", *DEMO)
            terminal.press(b'{"type":"get_state"}\n')
            terminal.read_until(b'"command":"get_state"')
            codes.append(terminal.hang_up())
    assert codes[0] == codes[1]
    assert eventually(lambda: not home.forked())


def test_the_chat_has_the_terminal_itself_and_a_warm_agent(home: WarmHome) -> None:
    before = home.finished
    terminal = Terminal(home, "--model", "demo", "--no-session", "--plain")
    assert eventually(lambda: len(home.forked()) == 1), "its agent is not forked"
    terminal.press(b"\x04")
    assert terminal.end() == b"ended with 0"
    assert eventually(lambda: home.finished == before + 1)


def test_calls_in_the_background_of_a_terminal_start_by_themselves(home: WarmHome) -> None:
    """There they may not read it, and the kernel stops only those of its session that do."""
    before = home.finished
    words = " ".join([*command_line(), "-p", *DEMO, "hello"])
    master, slave = pty.openpty()
    shell = subprocess.run(
        ["setsid", "--ctty", "--wait", "bash", "-mc", f"{words} > /dev/null & wait $!"],
        env=home.environment(),
        cwd=home.folders.work,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        timeout=SECONDS,
        check=False,
    )
    os.close(slave)
    os.close(master)
    assert shell.returncode == 0
    assert home.finished == before


def test_many_calls_at_once_all_get_their_own_answer(home: WarmHome) -> None:
    agents = [home.open("--mode", "rpc", "--model", "demo", "--no-session", "--name", f"n{n}") for n in range(6)]
    states = [ask(agent, b'{"type":"get_state"}') for agent in agents]
    assert [b'"sessionName":"n%d"' % n in state for n, state in enumerate(states)] == [True] * 6
    assert [end(agent) for agent in agents] == [0] * 6
