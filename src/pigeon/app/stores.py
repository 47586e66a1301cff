"""Which session store a process uses: what an option or a variable names, or the files of the agent's folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pigeon.session.history.session_folders import SessionFolders
from pigeon.store.addresses import EMBEDDED, FILES, VARIABLE, check_address
from pigeon.system.environment import Environment

if TYPE_CHECKING:
    from pigeon.session.history.file_store import FileStore
    from pigeon.store.postgres import PostgresStore
    from pigeon.store.protocol import SessionStore

EMBEDDED_FOLDER = "postgres"


def find_store_address(asked: str | None, environment: Environment) -> str | None:
    """The full address of the store that is asked for, else of the variable's; None for the default, files in the
    agent's folder. Raises `StartupError`."""
    address = asked or environment.variables.get(VARIABLE) or FILES
    return None if check_address(address) == FILES else address


def find_store(asked: str | SessionStore | None, environment: Environment) -> str | SessionStore | None:
    """The same for a program, which may give a store itself; files of another folder are an address, too."""
    if asked is None or isinstance(asked, str):
        return find_store_address(asked, environment)
    from pigeon.session.history.file_store import FileStore

    return asked.address if isinstance(asked, FileStore) else asked


def complete_address(address: str | None, environment: Environment, agent_dir: str) -> str:
    """An address with the folder that it leaves open."""
    if address is None:
        return FILES + SessionFolders.from_agent_dir(agent_dir).root
    for scheme in (EMBEDDED, FILES):
        if address.startswith(scheme):
            named = address.removeprefix(scheme)
            return scheme + (environment.absolute_path(named) if named else os.path.join(agent_dir, EMBEDDED_FOLDER))
    return address


def name_process() -> str:
    """How the leases of this process are called, unless it was given a name."""
    import socket

    return f"{socket.gethostname()}-{os.getpid()}"


def make_store(address: str | None, environment: Environment, agent_dir: str) -> FileStore | PostgresStore:
    """The store at an address of `find_store_address`; nothing is opened yet."""
    from pigeon.session.history.file_store import FileStore
    from pigeon.store.postgres import PostgresStore

    full = complete_address(address, environment, agent_dir)
    return FileStore(full.removeprefix(FILES)) if full.startswith(FILES) else PostgresStore(full)
