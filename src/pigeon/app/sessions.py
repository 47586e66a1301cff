"""Which conversation a process begins with, by its options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from pigeon.cli.args import Options
from pigeon.cli.picker import pick
from pigeon.config.settings import Settings
from pigeon.session.history import listing
from pigeon.session.history.journal import Journal
from pigeon.session.history.reading import load_session
from pigeon.session.history.repository import SessionRepository, default_folder
from pigeon.system import clock
from pigeon.wire.base import Absent
from pigeon.wire.errors import Refusal, StartupError

_SESSION_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def repository_of(
    options: Options,
    settings: Settings,
    agent_dir: str,
    cwd: str,
    environment: Mapping[str, str],
    report: Callable[[str], None],
) -> SessionRepository:
    """Where this process keeps its conversations."""
    own = options.session_dir or environment.get("PI_CODING_AGENT_SESSION_DIR")
    if not own and not isinstance(settings.session_dir, Absent):
        own = settings.session_dir
    folder = os.path.abspath(os.path.expanduser(own)) if own else default_folder(agent_dir, cwd)
    everywhere = os.path.join(agent_dir, "sessions")
    return SessionRepository(folder, everywhere, not options.no_session, clock.now_ms, report)


def journal_of(options: Options, repository: SessionRepository, cwd: str) -> Journal:
    """The conversation that the options name, or a new one; raises `StartupError` if that cannot be."""
    _check(options)
    if options.resume == "":
        options.resume = pick(repository.folder)
    try:
        if options.no_session:
            return repository.new(cwd, session_id=options.session_id)
        if options.fork:
            return _forked(_found(options.fork, repository), repository, cwd, options.session_id)
        if options.session or options.resume:
            return repository.open(_found(options.session or options.resume, repository), cwd)
        if options.session_id:
            known = listing.resolve(options.session_id, repository.folder, repository.folder)
            if known is not None and (listing.header_of(known[0]) or {}).get("id") == options.session_id:
                return repository.open(known[0], cwd)
        if vars(options)["continue"]:
            shared = os.path.dirname(repository.folder) != repository.everywhere
            path = listing.newest(repository.folder, cwd if shared else None)
            if path is not None:
                return repository.open(path, cwd)
    except Refusal as error:
        raise StartupError(str(error)) from None
    return repository.new(cwd, session_id=options.session_id)


def _check(options: Options) -> None:
    others = [flag for flag in ("session", "continue", "resume", "no_session") if vars(options)[flag]]
    if options.fork and others:
        raise StartupError(f"--fork cannot be combined with --{others[0].replace('_', '-')}")
    if options.session_id and any(flag in others for flag in ("session", "continue", "resume")):
        raise StartupError("--session-id cannot be combined with --session, --continue or --resume")
    if options.session_id and not _SESSION_ID.fullmatch(options.session_id):
        raise StartupError(
            f'Invalid session id "{options.session_id}": use letters, digits, ".", "_" and "-", '
            "with a letter or digit at both ends"
        )


def _found(reference: str, repository: SessionRepository) -> str:
    if "/" in reference or "\\" in reference or reference.endswith(".jsonl"):
        return reference
    found = listing.resolve(reference, repository.folder, repository.everywhere)
    if found is None:
        raise StartupError(f"No session found matching '{reference}'")
    path, here = found
    if not here:
        raise StartupError(
            f"Session '{reference}' belongs to another project: {path}. "
            "Open it with --session PATH, or copy it here with --fork PATH"
        )
    return path


def _forked(path: str, repository: SessionRepository, cwd: str, session_id: str | None) -> Journal:
    path = os.path.abspath(os.path.expanduser(path))
    loaded = load_session(path)
    if loaded is None:
        raise StartupError(f"No session found matching '{path}'")
    return repository.copy(loaded.lines, cwd, path, session_id)
