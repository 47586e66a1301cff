"""`python delayed_shell.py SECONDS COMMAND...`: a command whose input and output take so long on their way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from queue import Queue


def pass_on(source: int, target: int, delay: float) -> None:
    """Copy everything, each part so many seconds after it came."""
    waiting: Queue[tuple[float, bytes]] = Queue(maxsize=64)

    def read() -> None:
        while True:
            data = os.read(source, 1 << 16)
            waiting.put((time.monotonic() + delay, data))
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    while True:
        due, data = waiting.get()
        threading.Event().wait(max(0.0, due - time.monotonic()))
        if not data:
            os.close(target)
            return
        while data:
            data = data[os.write(target, data) :]


def main() -> int:
    delay = float(sys.argv[1])
    shell = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdin is not None
    assert shell.stdout is not None
    ways = ((0, os.dup(shell.stdin.fileno())), (shell.stdout.fileno(), 1))
    shell.stdin.close()
    threads = [threading.Thread(target=pass_on, args=(*way, delay), daemon=True) for way in ways]
    for thread in threads:
        thread.start()
    threads[1].join()
    return shell.wait()


if __name__ == "__main__":
    sys.exit(main())
