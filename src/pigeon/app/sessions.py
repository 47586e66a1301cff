"""Which conversation a process begins with, by its options."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pigeon.app.options import AgentOptions
from pigeon.app.stores import find_store, make_store, name_process
from pigeon.config.settings import Settings
from pigeon.session.history.journal import Journal
from pigeon.session.history.listing import header_of
from pigeon.session.history.reading import load_session, read_header
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.session_folders import SessionFolders
from pigeon.store.addresses import FILES
from pigeon.system.environment import Environment
from pigeon.wire.base import Absent
from pigeon.wire.errors import Refusal, StartupError, UsageError

if TYPE_CHECKING:
    from pigeon.session.history.stored_repository import StoredRepository
    from pigeon.store.protocol import SessionStore

_SESSION_ID = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


def make_repository(
    options: AgentOptions,
    environment: Environment,
    settings: Settings,
    agent_dir: str,
    cwd: str,
    report: Callable[[str], None],
    mask: Callable[[bytes], bytes],
    workspace: str | None = None,
) -> SessionRepository:
    """The repository for this process's conversations; those of another machine are kept in a folder of their own."""
    own = options.session_dir or environment.variables.get("PI_CODING_AGENT_SESSION_DIR")
    if not own and not isinstance(settings.session_dir, Absent):
        own = settings.session_dir
    kept = find_store(options.store, environment)
    store = SessionFolders.from_agent_dir(agent_dir)
    if isinstance(kept, str) and kept.startswith(FILES):
        store = SessionFolders(environment.absolute_path(kept.removeprefix(FILES)))
        try:
            SessionRepository.check_folder(store.root)
        except Refusal as error:
            raise StartupError(f"--store {kept}: {error}") from None
    folder = environment.absolute_path(own) if own else store.folder_of(cwd if workspace is None else workspace)
    persistent = not options.no_session
    about = (environment.now, report, environment.absolute_path, mask, environment.ids, workspace)
    parts = (folder, store, persistent, *about)
    if kept is None or not persistent or (isinstance(kept, str) and kept.startswith(FILES)):
        return SessionRepository(*parts)
    if options.store is None and options.session_dir:
        return SessionRepository(*parts)
    if options.session_dir:
        raise UsageError("--session-dir cannot be combined with --store: the store says where conversations are")
    return _make_stored_repository(kept, options, environment, agent_dir, parts)


def _make_stored_repository(
    kept: str | SessionStore, options: AgentOptions, environment: Environment, agent_dir: str, parts: tuple[Any, ...]
) -> SessionRepository:
    from pigeon.session.history.session_rows import Ownership
    from pigeon.session.history.stored_repository import StoredRepository

    own = Ownership(
        store=make_store(kept, environment, agent_dir) if isinstance(kept, str) else kept,
        owner=options.node or name_process(),
        seconds=_parse_lease_seconds(options.lease_seconds),
        loop=asyncio.get_running_loop(),
        report=parts[4],
        closes_store=isinstance(kept, str),
    )
    return StoredRepository(own, *parts)


def _parse_lease_seconds(given: float | str) -> float:
    """How long a lease lasts; it is renewed four times in its life, which needs some time."""
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= 3600:
        raise UsageError(f'--lease-seconds must be a number from 1 to 3600; got "{given}"')
    return seconds


async def open_first_journal(
    options: AgentOptions, environment: Environment, repository: SessionRepository, cwd: str
) -> Journal:
    """The conversation that the options name, or a new one; raises `StartupError` if that is impossible."""
    from pigeon.session.history.stored_repository import StoredRepository

    if not isinstance(repository, StoredRepository):
        return open_journal(options, environment, repository, cwd)
    _check_session_options(options)
    try:
        await repository.open_store()
        return await _open_stored_journal(options, repository, cwd)
    except Refusal as error:
        await repository.close_store()
        raise StartupError(str(error)) from None
    except BaseException:
        await repository.close_store()
        raise


async def _open_stored_journal(options: AgentOptions, repository: StoredRepository, cwd: str) -> Journal:
    named = options.session or options.resume
    if options.resume == "":
        raise UsageError("--resume needs the ID of a conversation in a store; pigeon sessions --store URL lists them")
    if options.fork:
        return await repository.fork(options.fork, cwd, options.session_id)
    if named is None and options.session_id and await repository.has_session(options.session_id):
        named = options.session_id
    if named is None and options.continue_newest:
        rows, _ = await repository.list_sessions(cwd, limit=1)
        named = rows[0].id if rows else None
    if named is None:
        return repository.create_journal(cwd, session_id=options.session_id)
    return repository.open(named, cwd, None, await repository.prepare_session(named))


async def find_workspace_of_session(
    options: AgentOptions, environment: Environment, repository: SessionRepository
) -> str | None:
    """The workspace of the conversation that the options name, if it is another machine.

    None if there is no such conversation: that is reported where it is opened.
    """
    from pigeon.session.history.stored_repository import StoredRepository

    named = options.session or options.resume or options.fork
    if options.no_session or not named:
        return None
    if isinstance(repository, StoredRepository):
        try:
            return await repository.find_workspace(named)
        finally:
            await repository.close_store()
    try:
        return _find_workspace_of_file(named, environment, repository)
    except (Refusal, OSError):
        return None


def _find_workspace_of_file(named: str, environment: Environment, repository: SessionRepository) -> str | None:
    if repository.store.is_file_reference(named):
        path = environment.absolute_path(named)
    else:
        found = repository.store.resolve(named, repository.folder)
        path = "" if found is None else found[0]
    header = read_header(path) if path and os.path.isfile(path) else None
    workspace = (header or {}).get("workspace")
    return workspace if isinstance(workspace, str) else None


def open_journal(options: AgentOptions, environment: Environment, repository: SessionRepository, cwd: str) -> Journal:
    """The conversation that the options name, or a new one; raises `StartupError` if that is impossible."""
    _check_session_options(options)
    named = options.session
    if options.resume is not None:
        named = named or options.resume or environment.pick_session(repository.folder)
    try:
        if options.no_session:
            return repository.create_journal(cwd, session_id=options.session_id)
        if options.fork:
            return _fork_session(
                environment.absolute_path(_resolve_session_path(options.fork, repository)),
                repository,
                cwd,
                options.session_id,
            )
        if named:
            return repository.open(_resolve_session_path(named, repository), cwd)
        if options.session_id:
            known = repository.store.find_by_id(repository.folder, options.session_id)
            if known is not None and header_of(known) is not None:
                return repository.open(known, cwd)
        if options.continue_newest:
            is_of_cwd = repository.store.is_folder_of_one_cwd(repository.folder)
            path = repository.store.find_newest(repository.folder, None if is_of_cwd else cwd)
            if path is not None:
                return repository.open(path, cwd)
    except Refusal as error:
        raise StartupError(str(error)) from None
    return repository.create_journal(cwd, session_id=options.session_id)


def _check_session_options(options: AgentOptions) -> None:
    beginnings = {
        "--session": options.session,
        "--continue": options.continue_newest,
        "--resume": options.resume,
        "--no-session": options.no_session,
    }
    others = [flag for flag, given in beginnings.items() if given]
    if options.fork and others:
        raise UsageError(f"--fork cannot be combined with {others[0]}")
    if options.session_id and set(others) - {"--no-session"}:
        raise UsageError("--session-id cannot be combined with --session, --continue or --resume")
    if options.session_id and not re.fullmatch(_SESSION_ID, options.session_id):
        raise UsageError(
            f'Invalid session id "{options.session_id}": use letters, digits, ".", "_" and "-", '
            "with a letter or digit at both ends"
        )


def _resolve_session_path(reference: str, repository: SessionRepository) -> str:
    if repository.store.is_file_reference(reference):
        return reference
    found = repository.store.resolve(reference, repository.folder)
    if found is None:
        raise StartupError(f"No session found matching '{reference}'")
    path, here = found
    if not here:
        raise StartupError(
            f"Session '{reference}' belongs to another project: {path}. "
            "Open it with --session PATH, or copy it here with --fork PATH"
        )
    return path


def _fork_session(path: str, repository: SessionRepository, cwd: str, session_id: str | None) -> Journal:
    loaded = load_session(path)
    if loaded is None:
        raise StartupError(f"No session found matching '{path}'")
    return repository.copy(loaded.lines, cwd, path, session_id)
