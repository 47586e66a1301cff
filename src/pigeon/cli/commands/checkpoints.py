"""`pigeon sessions checkpoints`: how much disk undo takes for each session, and freeing it."""

from __future__ import annotations

import json
from collections.abc import Callable

from pigeon.app.checkpoints import checkpoints_folder
from pigeon.checkpoints.cleaning import free_checkpoints, has_session, list_stored
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import format_table, print_line, print_to_stderr
from pigeon.session.history.repository import SessionRepository
from pigeon.transport import exit_codes
from pigeon.wire.errors import StartupError


def run_checkpoints(call: CommandCall, repository: SessionRepository | None) -> int:
    """List or free; `repository` has the session files, None if sessions are kept in a database."""
    store, wanted = checkpoints_folder(call.environment.agent_dir()), call.word_at(0)
    stored = [one for one in list_stored(store) if not wanted or one.id.startswith(wanted)]
    if wanted and not stored:
        raise StartupError(f"There are no checkpoints of a session {wanted}. `pigeon sessions checkpoints` lists them")
    frees = call.has_option("free")
    if frees:
        if wanted and len(stored) > 1:
            raise StartupError(f"{wanted} is the beginning of several ids: {', '.join(one.id for one in stored)}")
        stored = free_checkpoints(store, _make_wish(store, repository, stored[0].id if wanted else None))
    if call.has_option("json"):
        print_line(json.dumps([{"id": one.id, "bytes": one.bytes} for one in stored], indent=2))
    elif stored:
        print_line(format_table([("id", "bytes"), *((one.id, f"{one.bytes:,}") for one in stored)]))
        if frees:
            print_line("They are removed.")
    else:
        print_to_stderr("There is nothing to free." if frees else "There are no checkpoints.")
    return exit_codes.OK


def _make_wish(store: str, repository: SessionRepository | None, freed: str | None) -> Callable[[str], bool]:
    """Which checkpoints are to stay: all but those to be freed, or those of sessions that exist."""
    if freed is not None:
        return lambda session_id: session_id != freed
    if repository is None:
        raise StartupError("Name the session: which sessions are in the database is not looked up here")
    kept, folders = repository.store, repository.folders()
    known = {kept.id_in_name(path) for folder in folders for path in kept.list_files(folder)}
    return lambda session_id: session_id in known or has_session(store, session_id)
