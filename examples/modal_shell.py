"""A shell in a Modal sandbox on stdin and stdout, so that an agent can work there with everything that Pigeon has:

    pigeon --workspace 'exec:python examples/modal_shell.py SANDBOX_ID#/root'

Needs `pip install modal` and an account; `modal.Sandbox.create(...)` makes a sandbox and gives its id.
"""

from __future__ import annotations

import asyncio
import os
import sys

import modal

BLOCK = 1 << 16


async def send_input(process: modal.container_process.ContainerProcess[bytes]) -> None:
    """What Pigeon says goes to the shell."""
    while data := await asyncio.to_thread(os.read, 0, BLOCK):
        process.stdin.write(data)
        await process.stdin.drain.aio()
    process.stdin.write_eof()
    await process.stdin.drain.aio()


async def print_output(process: modal.container_process.ContainerProcess[bytes]) -> None:
    """What the shell says goes to Pigeon."""
    async for data in process.stdout:
        view = memoryview(data)
        while view:
            view = view[await asyncio.to_thread(os.write, 1, view) :]


async def main(sandbox_id: str) -> int:
    sandbox = await modal.Sandbox.from_id.aio(sandbox_id)
    process = await sandbox.exec.aio("/bin/sh", text=False)
    sending = asyncio.ensure_future(send_input(process))
    await print_output(process)
    sending.cancel()
    return await process.wait.aio()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: modal_shell.py SANDBOX_ID")
    code = asyncio.run(main(sys.argv[1]))
    # A thread may still wait for input that never comes.
    os._exit(code)
