"""Starts a warm parent: this program once more, by the same interpreter, in the background."""

from __future__ import annotations

import os
import select
import subprocess
import sys

from pigeon.system.process.python_programs import make_same_program_command
from pigeon.system.process.variables import own_environment
from pigeon.system.process.warm.link import is_read_at_start

READY_SECONDS = 60.0
READY = b"ready"
# What Python 3.7 and later set where the locale is C, which makes their own child another interpreter.
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


class ParentFailed(Exception):
    """The parent has ended, or is not ready."""


def start_parent(folder: int, idle_minutes: float) -> int:
    """Start a parent with its socket in this folder and wait until it accepts calls; returns its process."""
    ready, theirs = os.pipe()
    given = {name: value for name, value in os.environ.items() if not _is_coerced(name)}
    names = [name for name in given if is_read_at_start(os.fsencode(name))]
    try:
        program = subprocess.Popen(
            make_same_program_command("warm", "--parent", str(folder), "--idle-minutes", repr(idle_minutes)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            pass_fds=(folder,),
            # Not even the home: nothing of a user.
            env=own_environment(given, *names).only({*names, "PATH"}).with_added(_user_packages()),
            start_new_session=True,
        )
    except OSError as error:
        os.close(ready)
        raise ParentFailed(error.strerror or str(error)) from None
    finally:
        os.close(theirs)
    try:
        answer = _read_answer(ready)
    finally:
        os.close(ready)
    if answer != READY:
        program.kill()
        lines = answer.decode("utf-8", "replace").strip().splitlines()
        raise ParentFailed(lines[-1].removeprefix("Error: ") if lines else "it has ended")
    # It outlives this process, which does not wait for it.
    program.returncode = 0
    return program.pid


def _user_packages() -> dict[str, str]:
    """Where `pip install --user` has put Pigeon, if `bin/pigeon-main` had to look there: the parent has no home in
    which it could."""
    site = sys.modules.get("site")
    if sys.flags.isolated and getattr(site, "USER_SITE", None) in sys.path:
        return {"PYTHONUSERBASE": str(getattr(site, "USER_BASE", ""))}
    return {}


def _read_answer(ready: int) -> bytes:
    """All that the parent writes until it is ready or has ended."""
    answer = b""
    while answer != READY:
        if not select.select([ready], [], [], READY_SECONDS)[0]:
            return b"it takes too long"
        piece = os.read(ready, 4096)
        if not piece:
            break
        answer += piece
    return answer


def _is_coerced(name: str) -> bool:
    """True if Python itself has set this variable (PEP 538), which it would do again."""
    is_by_locale = sys.flags.utf8_mode and "utf8" not in sys._xoptions and b"PYTHONUTF8" not in os.environb
    return name == "LC_CTYPE" and bool(is_by_locale) and os.environ["LC_CTYPE"] in _COERCED
