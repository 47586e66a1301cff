"""The programs behind `support.fork_server`: the server, which forks one agent per request, and the relay to it.

The server (`serve DESCRIPTOR SCRIPT ADDRESS`) gets the descriptor of the control socket, the path of the `pigeon`
script, and the name of an abstract socket to listen on. It imports what an agent imports, and plays conversations, as
`pigeon serve` does before it forks: what an agent need not copy, compile or adapt anew is a third of its time. Then it
has one thread, no event loop and no open file but these sockets, so that a child is a new interpreter that has imported
a lot. A request is one packet that carries four descriptors: stdin, stdout, stderr and a channel. It comes on the
control socket, or on a connection of its own from a relay, and in that case the end of the channel kills the agent. The
child reads `(arguments, folder, environment)` from the channel and becomes the program. The parent writes lines to the
channel: the child's pid, and its exit code (or minus the signal) when it has ended.

The server leaves its parent at once, because tests look at the children of their own process, and says its pid on the
control socket. The end of that socket means that the pytest worker is gone, for whatever reason: the agents that are
left are killed with their process groups, and the server ends.

The relay (`relay ADDRESS ARGUMENT...`) is `pigeon` to the one who starts it, without the cost of its start. It hands
over its descriptors, folder and environment, passes signals on, and ends as the agent does. If it is killed, the server
kills the agent.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import marshal
import os
import select
import signal
import socket
import sys
import termios
import types

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PROGRAMS = ("pigeon.__main__", "pigeon.system.process.helper_main")
# What `bin/pigeon-main` does, once it runs isolated.
PROGRAM = "from pigeon.cli.main import main\nmain()\n"
COMM = "/proc/self/comm"
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")


def relay_agent() -> None:
    # The agent may have answered before its pid is known here; a signal waits until it can be passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    address, *arguments = sys.argv[2:]
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(f"\0{address}")
        socket.send_fds(server, [b"f"], [0, 1, 2, theirs.fileno()])
    os.closerange(0, 3)
    ours.sendall(marshal.dumps((arguments, os.getcwd(), dict(os.environ))))
    ours.shutdown(socket.SHUT_WR)
    numbers = ours.makefile("rb")
    agent = int(numbers.readline())
    for number in PASSED_ON:
        signal.signal(number, lambda caught, _: os.kill(agent, caught))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    code = int(numbers.readline() or 1)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve_forks() -> None:
    if os.fork():
        os._exit(0)
    control = socket.socket(fileno=int(sys.argv[2]))
    control.set_inheritable(False)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{sys.argv[4]}")
    listener.listen()
    _report(control, os.getpid())
    script = sys.argv[3]
    program = compile(PROGRAM, script, "exec")
    thresholds = gc.get_threshold()
    _warm_up()
    # What ran there has set them for itself.
    gc.set_threshold(*thresholds)
    gc.freeze()
    with contextlib.suppress(EOFError):
        _serve(control, listener, program)
    os._exit(0)


def _warm_up() -> None:
    """What `pigeon serve` does before it forks its workers, and the packages that those leave out.

    An import that fails must fail in the agent, where it is tested.
    """
    import importlib
    import pkgutil

    from pigeon.frontends.agent_imports import import_agent_modules
    from pigeon.frontends.serve.workers import warming

    with contextlib.suppress(Exception):
        import_agent_modules()
    package = importlib.import_module("pigeon")
    for module in pkgutil.walk_packages(package.__path__, "pigeon.", onerror=lambda name: None):
        if module.name not in PROGRAMS:
            with contextlib.suppress(Exception):
                importlib.import_module(module.name)
    _run_once()
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    for _ in warming.warm_up(plays=True, path=os.environ.get("PATH", os.defpath)):
        pass
    for number, handler in handlers.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _run_once() -> None:
    """Options are read twice as fast when their parser has worked before; patterns of errors take long to compile."""
    from pigeon.cli.args import parse_arguments
    from pigeon.providers.errors import classify_failure

    for _ in range(3):
        parse_arguments(["--mode", "rpc", "--no-session"])
    for status in (None, 400):
        classify_failure("said nothing", status=status)


def _serve(control: socket.socket, listener: socket.socket, program: types.CodeType) -> None:
    """Fork on request, report what ended; a pidfd of each child tells when."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(listener, select.POLLIN)
    children: dict[int, tuple[int, socket.socket]] = {}
    relayed: dict[int, int] = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == control.fileno():
                _, received, _, _ = socket.recv_fds(control, 1, 4)
                if not received:
                    _kill_groups([pid for pid, _ in children.values()])
                    return
                pid, channel, ended = _fork(received, program)
                poll.register(ended, select.POLLIN)
                children[ended] = pid, channel
            elif descriptor == listener.fileno():
                relay = listener.accept()[0]
                with relay:
                    pid, channel, ended = _fork(socket.recv_fds(relay, 1, 4)[1], program)
                poll.register(ended, select.POLLIN)
                poll.register(channel, 0)
                children[ended] = pid, channel
                relayed[channel.fileno()] = pid
            elif descriptor in relayed:
                poll.unregister(descriptor)
                _kill_groups([relayed.pop(descriptor)])
            else:
                poll.unregister(descriptor)
                os.close(descriptor)
                pid, channel = children.pop(descriptor)
                if relayed.pop(channel.fileno(), None):
                    poll.unregister(channel)
                _report(channel, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                channel.close()


def _fork(received: list[int], program: types.CodeType) -> tuple[int, socket.socket, int]:
    pid = os.fork()
    if pid == 0:
        _become(received, program)
    *streams, last = received
    for descriptor in streams:
        os.close(descriptor)
    channel = socket.socket(fileno=last)
    ended = os.pidfd_open(pid)
    _report(channel, pid)
    return pid, channel, ended


def _report(channel: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        channel.send(b"%d\n" % number)


def _kill_groups(leaders: list[int]) -> None:
    for pid in leaders:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


def _become(received: list[int], program: types.CodeType) -> None:
    """Be the program: its session, descriptors, folder, environment, arguments and `__main__`."""
    try:
        os.setsid()
        arguments, folder, environment = _request(received[3])
        for target, descriptor in enumerate(received[:3]):
            os.dup2(descriptor, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if os.isatty(0):
            # The terminal is that of the new session, so that its keys and its end are signals.
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # As the interpreter decides at its start.
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
        with open(COMM, "w") as name:
            name.write(os.path.basename(program.co_filename))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        if not any(environment.get(name) for name in LOCALE):
            os.environ["LC_CTYPE"] = "C.UTF-8"  # as the interpreter does at its start where no locale is set
        os.environ["PWD"] = os.getcwd()  # as the shell does that runs the script
        sys.argv[:] = [program.co_filename, *arguments]
        module = types.ModuleType("__main__")
        module.__file__ = f"{program.co_filename}-main"
        sys.modules["__main__"] = module
        exec(program, module.__dict__)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        os._exit(1)


def _request(channel: int) -> tuple[list[str], str, dict[str, str]]:
    """Everything up to the end of what the client says."""
    parts = []
    while part := os.read(channel, 1 << 16):
        parts.append(part)
    arguments, folder, environment = marshal.loads(b"".join(parts))
    return arguments, folder, environment


if __name__ == "__main__":
    {"serve": serve_forks, "relay": relay_agent}[sys.argv[1]]()
