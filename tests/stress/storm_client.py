"""A client of `pigeon serve` that is a process: what it reads it sends, what it gets it writes. To be killed."""

from __future__ import annotations

import os
import sys
import threading

from websockets.sync.client import ClientConnection, connect


def main(address: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with connect(address, additional_headers=headers, max_size=None, ping_interval=None) as connection:
        threading.Thread(target=_send, args=(connection,), daemon=True).start()
        for line in connection:
            text = line if isinstance(line, str) else line.decode()
            rest = f"{text}\n".encode()
            while rest:
                rest = rest[os.write(1, rest) :]


def _send(connection: ClientConnection) -> None:
    for line in sys.stdin:
        connection.send(line.rstrip("\n"))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
