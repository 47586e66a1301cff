"""Many connections that say nothing: `make serve-flood N=10000`, and fewer of them in the tests."""

from __future__ import annotations

import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.pigeon_serve import AttackedServer, reply


@contextmanager
def flood(port: int, number: int) -> Iterator[int]:
    """So many open connections, of which the server may have ended some; gives how many could be made."""
    links: list[socket.socket] = []
    try:
        for _ in range(number):
            link = socket.create_connection(("127.0.0.1", port), timeout=30)
            link.sendall(b"GET / HTTP/1.1\r\nX: ")
            links.append(link)
        yield len(links)
    finally:
        for link in links:
            link.close()


def main(number: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as root, AttackedServer(Path(root)) as server:
        session = server.new()
        with server.socket_of(session, "admin") as link:
            begun = time.monotonic()
            with flood(server.port, number) as opened:
                took = time.monotonic() - begun
                begun = time.monotonic()
                assert server.lives()
                assert reply(link, type="get_state")["success"]
                with server.socket_of(session, "read"):
                    pass
                answered = time.monotonic() - begun
                status = Path(f"/proc/{server.process.pid}/status").read_text()
            memory = next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]
            files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        assert server.lives()
    sys.stdout.write(
        f"{opened} connections in {took:.1f} s; meanwhile a health check, a list, a command and a new client took "
        f"{answered * 1000:.0f} ms; the server had {int(memory) // 1024} MB and {files} open files\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
