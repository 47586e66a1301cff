"""Commands as child processes: streamed, killable with everything they started, and never outliving us.

On Linux a command is run by a keeper (see `keepers`), so killing it takes along what called setsid or forked twice, and
our own death, even by SIGKILL, ends it. Elsewhere, or when the keepers' program cannot be started, it is a direct child
in a process group of its own (see `direct`), which is as far as those systems go. A command gets `/dev/null` as input,
one pipe for both outputs, and no other descriptor of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Protocol


class Process(Protocol):
    """A running command."""

    async def read(self, timeout: float | None = None) -> bytes | None:
        """More output; `b""` when there will be none, `None` when the time is over."""
        ...

    async def wait(self) -> int:
        """The exit code, 128 plus the signal's number for a death by signal; `OSError` if it could not be started."""
        ...

    async def read_errors(self) -> bytes | None:
        """The same for its error output, if that was wanted apart."""
        ...

    def ask_to_end(self) -> None:
        """Send SIGTERM to its process group; returns at once."""
        ...

    def kill(self, tidy: bool = True) -> None:
        """Kill it and everything it started; returns at once. Tidy: idle helpers of ours go along."""
        ...

    async def gone(self, timeout: float) -> bool:
        """Wait until nothing of it is left; false if that took too long."""
        ...

    def close(self) -> None:
        """No more output is wanted; what still runs in the background goes on."""
        ...


async def start(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    program: str | None = None,
    apart: bool = False,
    stdin: bytes | None = None,
) -> Process:
    """Run `program` (an absolute path; the first argument unless given) in `cwd` with exactly `env`.

    Apart: errors do not go into the same stream as the output, and are read with `read_errors`.
    """
    program = program or argv[0]
    if sys.platform.startswith("linux"):
        from pigeon.system.process.supervised import start_kept

        kept = start_kept(argv, cwd, env, program, apart=apart, stdin=stdin)
        if kept is not None:
            return kept
    from pigeon.system.process.unsupervised import start_direct

    return await start_direct(argv, cwd, env, program, apart=apart, stdin=stdin)


def warm_up() -> None:
    """Prepare for a first command that is soon to come, so that it need not wait; in a running event loop."""
    if sys.platform.startswith("linux"):
        from pigeon.system.process.pool import open_nursery

        if (nursery := open_nursery()) is not None:
            nursery.stock()


async def kill_everything(timeout: float = 2.0) -> bool:
    """Kill every command and all that was left running in the background; true if nothing is left."""
    done = True
    if pool := sys.modules.get("pigeon.system.process.pool"):
        done = await pool.kill_kept(timeout)
    if direct := sys.modules.get("pigeon.system.process.unsupervised"):
        done = await direct.kill_direct(timeout) and done
    return done
