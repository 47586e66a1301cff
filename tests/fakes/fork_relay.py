"""A program that is `pigeon` to the one who starts it, without the cost of its start: the fork server has the agent.

Arguments: the address of the server (`fakes.fork_server`), then those of the agent. It hands over its descriptors,
folder and environment, passes signals on, and ends as the agent does. If it is killed, the server kills the agent.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    # The agent may have answered before its pid is known here; a signal waits until it can be passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    address, *arguments = sys.argv[1:]
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


if __name__ == "__main__":
    main()
