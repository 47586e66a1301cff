"""`trust.json` in the user's folder: which project folders are trusted, by their real path.

The nearest parent folder counts, except for a folder in which commands behind a sandbox could write: files there may be
their work, so such a folder needs its own decision (`sandbox/written_folders.py` lists them). Its own earlier decision
counts as long as nothing has been added that needs trust: `sandbox-trust.jsonl` lists what a trusted folder had when
commands could first write around it.

If `trust.json` cannot be used, no project is trusted. A file that cannot be read, or that has comments, is never
overwritten: a decision is then not saved, and the caller gets the reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pigeon.config.json_file import has_comments, is_dangling_link, read_json
from pigeon.sandbox.written_folders import WRITTEN, append_to_list_file, read_list_file, written_folders
from pigeon.system.append_file import make_private_folder
from pigeon.system.files import replace_file
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

NAME = "trust.json"
DOUBTED = "sandbox-trust.jsonl"
# Decisions about folders of other machines: by workspace and path, so that the same path here is another folder.
WORKSPACES = "workspace-trust.json"


def saved_decision(agent_dir: str, cwd: str) -> tuple[bool | None, str | None]:
    """The decision about this folder or the nearest parent, and the error in the file, if any."""
    path = os.path.join(agent_dir, NAME)
    try:
        entries = _normalize_decisions(_read_entries(path))
    except FileNotFoundError as error:
        if not is_dangling_link(path):
            return None, None
        return False, f"{path}: {error.strerror}; no project is trusted until this is fixed"
    except (OSError, BadRecord) as error:
        return False, f"{path}: {error}; no project is trusted until this is fixed"
    own = folder = os.path.realpath(cwd)
    while True:
        if folder in entries:
            decision = entries[folder]
            if decision is True:
                return _check_inherited_trust(agent_dir, own) if folder != own else _check_own_trust(agent_dir, own)
            if isinstance(decision, bool):
                return decision, None
            return False, f"{path}: {folder} must be true or false; it is not trusted until this is fixed"
        above = os.path.dirname(folder)
        if above == folder:
            return None, None
        folder = above


def _check_inherited_trust(agent_dir: str, folder: str) -> tuple[bool | None, str | None]:
    """The trust in a parent folder, unless a command could have written the files in question."""
    try:
        written = written_folders(agent_dir)
    except (OSError, BadRecord) as error:
        return None, f"{os.path.join(agent_dir, WRITTEN)}: {error}; trust in a folder does not count for those in it"
    return (None if any(folder.startswith(f"{above}/") for above in written) else True), None


def _check_own_trust(agent_dir: str, folder: str) -> tuple[bool | None, str | None]:
    """The trust in a folder, unless files that need it have been added since commands could write around it."""
    try:
        had = _read_recorded_contents(agent_dir).get(folder)
    except (OSError, BadRecord) as error:
        return None, f"{os.path.join(agent_dir, DOUBTED)}: {error}; this project is not trusted until that is fixed"
    return (None if had is not None and set(_list_needing_trust(folder)) - set(had) else True), None


def _list_needing_trust(folder: str) -> list[str]:
    """The files in a folder that are only used if it is trusted."""
    from pigeon.sandbox.policy import NEVER_MADE
    from pigeon.sandbox.survey import AGENT_NAMES

    return sorted(name for name in {*NEVER_MADE, *AGENT_NAMES} if os.path.lexists(os.path.join(folder, name)))


def _read_recorded_contents(agent_dir: str) -> dict[str, list[str]]:
    """The files that trusted folders had when commands could first write around them; raises `OSError` and
    `BadRecord`."""
    found: dict[str, list[str]] = {}
    for line in read_list_file(agent_dir, DOUBTED):
        match line:
            case [str() as folder, list() as had]:
                found.setdefault(folder, [name for name in had if isinstance(name, str)])
            case [str() as folder, None]:
                found.pop(folder, None)
            case _:
                raise BadRecord("each line must be a list of a folder and what it had")
    return found


def record_trusted_contents(agent_dir: str, folders: Sequence[str]) -> None:
    """Record the files that need trust in the trusted folders among these, before commands behind a sandbox write
    there.

    Later additions are not trusted with them. Raises `OSError` and `BadRecord`.
    """
    try:
        decisions = _normalize_decisions(_read_entries(os.path.join(agent_dir, NAME)))
    except (OSError, BadRecord):
        # Then no folder is trusted.
        return
    known = _read_recorded_contents(agent_dir)
    trusted = (path for path, decision in decisions.items() if decision is True and path not in known)
    new = [path for path in trusted if any(path.startswith(f"{folder}/") for folder in folders)]
    append_to_list_file(agent_dir, DOUBTED, [[path, _list_needing_trust(path)] for path in new])


def save_decision(agent_dir: str, cwd: str, trusted: bool) -> str | None:
    """Save a decision for this folder; returns the error, or None."""
    path = os.path.join(agent_dir, NAME)
    folder = os.path.realpath(cwd)
    try:
        entries = _read_entries(path)
        if has_comments(path):
            line = f"{codec.encode(folder).decode()}: {codec.encode(trusted).decode()}"
            return f"{path} has comments, which would be lost; the decision was not saved; add {line} yourself"
    except FileNotFoundError:
        entries = {}
    except (OSError, BadRecord) as error:
        return f"{path}: {error}; the decision was not saved"
    entries = {name: value for name, value in entries.items() if os.path.normpath(name) != folder}
    entries[folder] = trusted
    try:
        make_private_folder(agent_dir)
        replace_file(path, codec.to_pretty_json(entries).encode() + b"\n", mode=0o600)
        # The decision is about the current contents.
        if trusted and folder in _read_recorded_contents(agent_dir):
            append_to_list_file(agent_dir, DOUBTED, [[folder, None]])
    except (OSError, BadRecord) as error:
        return f"{path}: {getattr(error, 'strerror', None) or error}; the decision was not saved"
    return None


def saved_decision_about_workspace(agent_dir: str, key: str) -> tuple[bool | None, str | None]:
    """The decision about a folder of another machine, and the error in the file, if any; no other folder counts."""
    path = os.path.join(agent_dir, WORKSPACES)
    try:
        decision = _read_entries(path).get(key)
    except FileNotFoundError:
        return None, None
    except (OSError, BadRecord) as error:
        return False, f"{path}: {error}; no workspace is trusted until this is fixed"
    return (decision if isinstance(decision, bool) else None), None


def save_decision_about_workspace(agent_dir: str, key: str, trusted: bool) -> str | None:
    """Save a decision about a folder of another machine; returns the error, or None."""
    path = os.path.join(agent_dir, WORKSPACES)
    try:
        try:
            entries = _read_entries(path)
        except FileNotFoundError:
            entries = {}
        make_private_folder(agent_dir)
        replace_file(path, codec.to_pretty_json({**entries, key: trusted}).encode() + b"\n", mode=0o600)
    except (OSError, BadRecord) as error:
        return f"{path}: {getattr(error, 'strerror', None) or error}; the decision was not saved"
    return None


def _read_entries(path: str) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise BadRecord("it must contain a JSON object")
    return value


def _normalize_decisions(entries: dict[str, Any]) -> dict[str, Any]:
    """The decisions by path, in any spelling; if two spellings disagree, the refusal counts.

    An untrusted folder also counts by its real path, so that no link avoids the decision. `null` is not a decision.
    """
    found: dict[str, Any] = {}
    for name, decision in entries.items():
        if decision is None:
            continue
        plain = os.path.normpath(name)
        for place in {plain} if decision is True else {plain, os.path.realpath(plain)}:
            if found.get(place, True) is True:
                found[place] = decision
    return found
