"""Which conversation a process begins with, by its options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from pigeon.app.options import AgentOptions
from pigeon.app.stores import find_store
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
    folder = environment.absolute_path(own) if own else store.folder_of(cwd if workspace is None else workspace)
    return SessionRepository(
        folder,
        store,
        not options.no_session,
        environment.now,
        report,
        environment.absolute_path,
        mask,
        environment.ids,
        workspace,
    )


def find_workspace_of_session(
    options: AgentOptions, environment: Environment, repository: SessionRepository
) -> str | None:
    """The workspace of the conversation that the options name, if it is another machine."""
    named = options.session or options.resume or options.fork
    if options.no_session or not named:
        return None
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
