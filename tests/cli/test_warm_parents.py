"""Who may use a warm parent, what it keeps, and when it ends: anything that differs makes a call start by itself."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pigeon.config.settings import Settings
from pigeon.system.process.messages import (
    Ended,
    ForkDone,
    ForkRequest,
    NotForked,
    ServerReady,
    close_descriptors,
    receive,
    send,
)
from pigeon.system.process.warm.call import WARM_FOLDER, connect_to, hand_over, open_warm_folder
from pigeon.system.process.warm.callers import CallerCheck
from pigeon.system.process.warm.code_watch import CodeWatch
from pigeon.system.process.warm.link import CallFacts, StartCold, describe_interpreter, name_socket
from pigeon.system.process.warm.server import MOST_UNDECIDED
from support.processes import eventually
from support.warm_calls import WarmHome, ask, end, is_alive, read_memory, ready_agent, run_as_root, warm_home

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="warm starts need Linux")
NOBODY = 65534
CALL = ("-p", "--model", "demo", "--no-session", "hello")
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID = 0x40000000, 0x00020000, 0x20000000
as_root = pytest.mark.skipif(not run_as_root(), reason="only root can become another user")
libc = ctypes.CDLL(None)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmHome]:
    with warm_home(tmp_path_factory.mktemp("warm")) as made:
        yield made


@contextlib.contextmanager
def opened(home: WarmHome) -> Iterator[tuple[int, str]]:
    """The folder of the socket, and its name."""
    folder = os.open(home.folder, os.O_RDONLY)
    try:
        (name,) = (name for name in os.listdir(folder) if name.endswith(".sock"))
        yield folder, name
    finally:
        os.close(folder)


def run_in_child(work: Callable[[], object]) -> str:
    """What a forked process finds: the result of `work`, or the name of its error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = type(error).__name__
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading) as file:
        return file.read()


def asks_for_a_process(home: WarmHome, folder: int, name: str) -> str:
    """How the parent answers to a caller that knows everything it needs."""
    with contextlib.closing(connect_to(folder, name)) as link:
        send(link, CallFacts(facts_of(home)))
        record, _ = receive(link)
    return type(record).__name__


def facts_of(home: WarmHome) -> bytes:
    """What the interpreter of a call says."""
    program = "import sys; from pigeon.system.process.warm.link import describe_interpreter as describe; "
    program += "sys.stdout.buffer.write(describe())"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program],
        env=home.environment(),
        capture_output=True,
        check=True,
        timeout=30,
    )
    return ran.stdout


# Who may use it


def test_a_caller_that_is_the_same_is_served(home: WarmHome) -> None:
    with opened(home) as (folder, name):
        assert name == name_socket(facts_of(home))
        assert asks_for_a_process(home, folder, name) == "ServerReady"


@as_root
def test_another_user_does_not_get_into_the_folder(home: WarmHome) -> None:
    for folder in (home.folder, *home.folder.parents):
        assert folder.stat().st_uid == 0

    def call() -> object:
        os.setuid(NOBODY)
        return os.listdir(home.folder)

    assert run_in_child(call) == "PermissionError"


@as_root
def test_another_user_who_reaches_the_socket_is_not_served(home: WarmHome) -> None:
    """By a descriptor of the folder that was passed on, and even with the right of writing to the socket."""
    facts = facts_of(home)
    with opened(home) as (folder, name):
        (home.folder / name).chmod(0o777)

        def call() -> object:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            os.fchdir(folder)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            link.settimeout(10)
            link.connect(name)
            send(link, CallFacts(facts))
            return receive(link)[0]

        assert run_in_child(call) in ("None", "BrokenPipeError", "PermissionError")


@as_root
def test_another_users_socket_is_not_believed(tmp_path: Path) -> None:
    """It cannot be put into the folder; but if it were there, its user would be seen."""
    home = WarmHome(tmp_path)
    home.folder.mkdir(mode=0o700, parents=True)
    name = name_socket(facts_of(home))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.chdir(home.folder)
        listener.bind(name)
        os.setuid(NOBODY)
        listener.listen()
        os.write(writing, b"1")
        with contextlib.suppress(OSError):
            link, _ = listener.accept()
            os.write(writing, link.recv(100) or b"-")
        os._exit(0)
    try:
        assert os.read(reading, 1) == b"1"
        assert home.call(*CALL).returncode == 0
        assert os.read(reading, 100) == b"-", "it was told something"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_folder_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    with warm_home(tmp_path) as home:
        for mode in (0o755, 0o770, 0o711):
            home.folder.chmod(mode)
            assert open_warm_folder(str(home.folders.home)) is None
            assert home.call(*CALL).returncode == 0
        refused = home.call("warm")
        assert refused.returncode == 1
        assert b"chmod 700" in refused.stderr
        home.folder.chmod(0o700)
        assert home.finished == 0


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    with warm_home(tmp_path) as home:
        other = home.folder.with_name("other")
        home.folder.rename(other)
        home.folder.symlink_to(other)
        assert home.call(*CALL).returncode == 0
        assert home.call("warm").returncode == 1
        home.folder.unlink()
        other.rename(home.folder)
        assert home.finished == 0


@as_root
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    home = WarmHome(tmp_path)
    home.folder.mkdir(mode=0o700, parents=True)
    os.chown(home.folder, NOBODY, NOBODY)
    assert open_warm_folder(str(home.folders.home)) is None
    assert home.call("warm").returncode == 1


def no_new_privs() -> None:
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def unshare(flags: int) -> Callable[[], None]:
    def change() -> None:
        assert libc.unshare(flags) == 0

    return change


DIFFERENT = {
    "no_new_privs": no_new_privs,
    "other limits of memory": lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)),
    "other limits of the stack": lambda: resource.setrlimit(resource.RLIMIT_STACK, (4 << 20, 8 << 20)),
    "other processors": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "another group": lambda: os.setgid(NOBODY),
    "other groups": lambda: os.setgroups([NOBODY]),
    "another network": unshare(CLONE_NEWNET),
    "other mounts": unshare(CLONE_NEWNS),
    "another root": lambda: os.chroot("/"),
    "another scheduler": lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
    "fewer capabilities": lambda: libc.prctl(24, 21, 0, 0, 0),
}
ONE_CPU = len(os.sched_getaffinity(0)) == 1 if sys.platform == "linux" else False


@as_root
@pytest.mark.parametrize("change", [name for name in DIFFERENT if name != "another root"])
def test_a_caller_that_is_not_like_the_parent_starts_by_itself(home: WarmHome, change: str) -> None:
    if change == "other processors" and ONE_CPU:
        pytest.skip("there is only one processor")
    before = home.finished
    ran = home.call(*CALL, preexec_fn=DIFFERENT[change])
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert home.finished == before


@as_root
def test_a_caller_in_another_root_is_seen() -> None:
    """Its paths would name other files in a process of ours."""
    check = CallerCheck()
    go, gone = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")
        listener.listen()
        address = listener.getsockname()
        for root, may in (("/", True), ("/usr", False)):
            pid = os.fork()
            if pid == 0:
                os.chroot(root)
                link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                link.connect(address)
                os.read(go, 1)
                os._exit(0)
            link, _ = listener.accept()
            with link:
                assert (check.may_call(link) == pid) is may
                os.write(gone, b"1")
                os.waitpid(pid, 0)
                # It has ended: whoever has its number now is another.
                assert check.may_call(link) is None
    os.close(go)
    os.close(gone)


@pytest.mark.parametrize(
    "variables",
    [{"LANG": "C"}, {"TZ": "Asia/Tokyo"}, {"LC_ALL": "C.UTF-8"}, {"LD_BIND_NOW": "1"}],
    ids=str,
)
def test_variables_that_an_interpreter_reads_make_another_parent(home: WarmHome, variables: dict[str, str]) -> None:
    before = home.finished
    assert home.call(*CALL, env=variables).returncode == 0
    assert home.finished == before


@pytest.mark.parametrize("language", ["", "C", "de_DE.ISO-8859-1"])
def test_a_locale_that_python_replaces_has_a_parent_too(tmp_path: Path, language: str) -> None:
    """There Python sets a variable itself, from which the parent would start in another way."""
    with warm_home(tmp_path, LANG=language) as home:
        assert home.call(*CALL).returncode == 0
        assert eventually(lambda: home.finished == 1)


def test_facts_are_compared_and_not_only_hashed(home: WarmHome) -> None:
    with opened(home) as (folder, name):
        with contextlib.closing(connect_to(folder, name)) as link:
            send(link, CallFacts(facts_of(home).replace(b"C.UTF-8", b"D.UTF-8")))
            assert receive(link)[0] is None
        # Nor is a process to be had without them.
        with contextlib.closing(connect_to(folder, name)) as link:
            send(link, ForkRequest(b""), [0])
            assert receive(link)[0] is None
    assert home.status() is not None


@pytest.mark.parametrize("sent", [b"", b"\x00", b"x" * 1000, b"\xfb\x00\x00\x00"], ids=repr)
def test_nonsense_ends_only_its_connection(home: WarmHome, sent: bytes) -> None:
    with opened(home) as (folder, name), contextlib.closing(connect_to(folder, name)) as link:
        link.send(sent)
        assert link.recv(100) == b""
    assert home.status() is not None


def test_connections_that_say_nothing_keep_no_call_out(home: WarmHome) -> None:
    with opened(home) as (folder, name), contextlib.ExitStack() as idle:

        def connect_one() -> bool:
            """False while the queue of the socket is full."""
            with contextlib.suppress(BlockingIOError):
                idle.enter_context(contextlib.closing(connect_to(folder, name)))
                return True
            return False

        for _ in range(MOST_UNDECIDED + 5):
            assert eventually(connect_one)
        assert asks_for_a_process(home, folder, name) == "ServerReady"


def test_a_request_that_cannot_be_taken_over_is_returned(home: WarmHome) -> None:
    """Whatever is wrong with it: the caller is still there, and does it itself."""
    with opened(home) as (folder, name), contextlib.closing(connect_to(folder, name)) as link:
        send(link, CallFacts(facts_of(home)))
        assert isinstance(receive(link)[0], ServerReady)
        send(link, ForkRequest(b"nonsense"), [0])
        answers = [receive(link) for _ in range(3)]
        assert {type(record) for record, _ in answers} == {ForkDone, StartCold, Ended}
        for _, descriptors in answers:
            close_descriptors(descriptors)


def test_a_caller_hides_before_it_says_anything_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its call runs, it holds the variables, and commands run as the same user."""
    (tmp_path / WARM_FOLDER).mkdir(mode=0o700, parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if os.path.isabs(folder)])
    told: list[object] = []

    def serve() -> None:
        with contextlib.closing(listener.accept()[0]) as link:
            told.append(type(receive(link)[0]))
            send(link, ServerReady(1))
            record, descriptors = receive(link, 250)
            close_descriptors(descriptors)
            told.append(type(record))
            send(link, NotForked(11))

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        monkeypatch.chdir(tmp_path / WARM_FOLDER)
        listener.bind(name_socket(describe_interpreter()))
        listener.listen()
        parent = threading.Thread(target=serve)
        parent.start()
        hand_over(lambda: told.append("hidden"))
        parent.join()
    assert told == [CallFacts, "hidden", ForkRequest]


# What it keeps


@as_root
def test_nothing_of_a_call_stays_in_the_parent(home: WarmHome) -> None:
    secrets = {f"ANTHROPIC_API_KEY_{number}": f"sk-ant-{os.urandom(12).hex()}" for number in range(3)}
    for name, key in secrets.items():
        agent = ready_agent(home, "--name", f"named-{key}", env={name: key})
        ask(agent, b'{"type":"bash","command":"true"}')
        assert any(key.encode() in piece for piece in read_memory(home.forked()[0])), "this test sees nothing"
        assert end(agent) == 0
    for piece in read_memory(home.parent):
        assert not any(key.encode() in piece for key in secrets.values())


@as_root
def test_the_parent_has_no_key_of_the_call_that_started_it(tmp_path: Path) -> None:
    key = f"sk-ant-{os.urandom(12).hex()}"
    with warm_home(tmp_path, ANTHROPIC_API_KEY=key) as home:
        environ = Path(f"/proc/{home.parent}/environ").read_bytes()
        assert b"ANTHROPIC" not in environ
        assert str(tmp_path).encode() not in environ
        assert not any(key.encode() in piece for piece in read_memory(home.parent))
        assert Path(f"/proc/{home.parent}").stat().st_uid == 0


def test_no_variable_and_no_descriptor_of_one_call_reaches_another(home: WarmHome) -> None:
    reading, writing = os.pipe()
    first = ready_agent(home, env={"OF_THE_FIRST": "1"}, pass_fds=(reading,))
    second = ready_agent(home, env={"OF_THE_SECOND": "1"})
    seen = ask(second, b'{"type":"bash","command":"env"}')
    assert b"OF_THE_SECOND" in seen
    assert b"OF_THE_FIRST" not in seen
    of_first, of_second = home.forked()
    held = os.readlink(f"/proc/self/fd/{reading}")
    assert held in _open_files(of_first)
    assert held not in _open_files(of_second)
    assert held not in _open_files(home.parent)
    end(first)
    end(second)
    os.close(reading)
    os.close(writing)


def _open_files(pid: int) -> set[str]:
    return {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}


def test_the_parent_has_no_terminal_and_no_folder_of_its_start(home: WarmHome) -> None:
    assert os.readlink(f"/proc/{home.parent}/cwd") == "/"
    assert os.getsid(home.parent) == home.parent
    kinds = {name.partition(":")[0] for name in _open_files(home.parent)}
    assert kinds <= {"/dev/null", "socket", "anon_inode", str(home.folder)}


# When it ends


def test_it_is_started_once_and_ended_by_request(tmp_path: Path) -> None:
    with warm_home(tmp_path) as home:
        assert b"already" in home.call("warm").stdout
        listed = home.call("warm", "--status")
        assert listed.returncode == 0
        assert listed.stdout.splitlines()[1].split()[:2] == [b"%d" % home.parent, b"0"]
        agent = ready_agent(home)
        assert home.call("warm", "--stop").stdout == b"Ended 1 warm parent; what they started goes on.\n"
        assert eventually(lambda: not is_alive(home.parent))
        assert b'"success":true' in ask(agent, b'{"type":"get_state"}')
        assert end(agent) == 0
        assert os.listdir(home.folder) == ["lock"]
        assert home.call("warm", "--status").returncode == 1
        assert home.call("warm", "--stop").stdout.startswith(b"Ended 0")
        home.start()


def test_it_ends_when_nobody_has_called_for_long(tmp_path: Path) -> None:
    home = WarmHome(tmp_path)
    home.start("--idle-minutes", "0.005")
    agent = ready_agent(home)
    assert end(agent) == 0
    assert eventually(lambda: not is_alive(home.parent))
    assert os.listdir(home.folder) == ["lock"]


def test_it_ends_when_its_code_has_changed(tmp_path: Path) -> None:
    """The next call runs what the files contain now."""
    copy = tmp_path / "copy" / "pigeon"
    shutil.copytree(Path(__file__).parents[2] / "src" / "pigeon", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    start = f"import sys; sys.path.insert(0, {str(copy.parent)!r}); from pigeon.cli.main import main; main()"
    with warm_home(tmp_path, [sys.executable, "-I", "-c", start]) as home:
        assert home.call(*CALL).returncode == 0
        assert eventually(lambda: home.finished == 1)
        with (copy / "cli" / "running.py").open("a") as file:
            file.write("\nsys.stderr.write('changed')\n")
        assert home.call(*CALL).stderr == b"changed"
        assert eventually(lambda: not is_alive(home.parent))


def test_code_that_changes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = tmp_path / "read"
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "modules", {})
    read.write_text("1")
    os.utime(read, (1, 1))
    watch = CodeWatch()
    watch.remember([str(read), str(tmp_path / "missing")])
    assert watch.is_current()
    for change in (lambda: os.utime(read, (2, 2)), lambda: os.truncate(read, 0), read.unlink):
        change()
        assert not watch.is_current()
        read.write_text("1")
        os.utime(read, (1, 1))
        watch = CodeWatch()
        watch.remember([str(read), str(tmp_path / "missing")])
        assert watch.is_current()
    (tmp_path / "missing").touch()
    assert not watch.is_current()


def test_code_that_changed_while_it_was_loaded_counts_as_changed(tmp_path: Path) -> None:
    watch = CodeWatch()
    read = tmp_path / "read"
    read.write_text("1")
    watch.remember([str(read)])
    assert not watch.is_current()


def test_byte_code_that_is_written_for_the_first_time_is_no_change(tmp_path: Path) -> None:
    watch = CodeWatch()
    (tmp_path / "library").mkdir()
    watch.remember([str(tmp_path / "library")])
    assert watch.is_current()
    (tmp_path / "library" / "new.py").touch()
    assert not watch.is_current()


def test_minutes_must_be_a_number(tmp_path: Path) -> None:
    home = WarmHome(tmp_path)
    for wrong in ("0", "-1", "soon", "nan", "inf"):
        ran = home.call("warm", "--idle-minutes", wrong)
        assert ran.returncode == 2
        assert b"--idle-minutes" in ran.stderr
    assert not home.folder.exists()


def test_options_of_different_actions_are_refused_together(tmp_path: Path) -> None:
    home = WarmHome(tmp_path)
    for one, other in (("--status", "--stop"), ("--stop", "--idle-minutes=3")):
        ran = home.call("warm", other, one)
        assert (ran.returncode, b"cannot be used together" in ran.stderr) == (2, True)


def test_the_setting_says_when_it_ends(tmp_path: Path) -> None:
    assert Settings().warm.idle_minutes == 30
    home = WarmHome(tmp_path)
    home.folders.configure(settings={"warm": {"idleMinutes": 7}})
    home.start()
    status = home.status()
    assert status is not None
    assert status.idle_limit == 7 * 60
    home.stop()


def test_relative_folders_of_modules_make_no_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(ValueError, match="working directory"):
        describe_interpreter()
