"""`sandbox-folders.jsonl` in the user's folder: the folders in which commands behind a sandbox could ever write.

Files there may be their work. So trust in a parent folder does not extend to them, and no program is run from there
outside a sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pigeon.system.append_file import make_private_folder
from pigeon.system.files import read_whole, replace_file
from pigeon.system.paths import keep_absolute_entries
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord

WRITTEN = "sandbox-folders.jsonl"
_LARGEST = 8 << 20
_TIDIED_ABOVE = 1000


def written_folders(agent_dir: str) -> list[str]:
    """The folders in which commands behind a sandbox could write, in this or an earlier session.

    Raises `OSError` and `BadRecord`.
    """
    return [str(line) for line in read_list_file(agent_dir, WRITTEN)]


def filter_programs_path(agent_dir: str, search_path: str | None, *also: str) -> str:
    """The entries of a PATH for programs that Pigeon itself runs outside a sandbox, or that see its keys.

    None of them lies in a folder that commands behind a sandbox could write, or in one of `also`: a program there may
    be their work. If it is not known which folders those are, only the system's own are left.
    """
    try:
        written = [*written_folders(agent_dir), *map(os.path.realpath, also)]
    except (OSError, BadRecord):
        return os.defpath
    entries = keep_absolute_entries(search_path).split(os.pathsep)
    real = {entry: f"{os.path.realpath(entry)}/" for entry in entries}
    return os.pathsep.join(one for one in entries if not any(real[one].startswith(f"{above}/") for above in written))


def record_written_folders(agent_dir: str, folders: Sequence[str]) -> None:
    """Record that commands behind a sandbox write these folders from now on; raises `OSError` and `BadRecord`."""
    known = written_folders(agent_dir)
    new = [folder for folder in folders if not any(f"{folder}/".startswith(f"{above}/") for above in known)]
    if new and len(known) > _TIDIED_ABOVE:
        left = b"".join(codec.encode(one) + b"\n" for one in known if os.path.isdir(one))
        replace_file(os.path.join(agent_dir, WRITTEN), left, mode=0o600)
    append_to_list_file(agent_dir, WRITTEN, new)


def read_list_file(agent_dir: str, name: str) -> list[Any]:
    """The lines of a list in the user's folder; raises `OSError` and `BadRecord`."""
    try:
        data = read_whole(os.path.join(agent_dir, name), _LARGEST)
    except FileNotFoundError:
        return []
    return [codec.decode(line) for line in data.splitlines() if line]


def append_to_list_file(agent_dir: str, name: str, lines: Sequence[Any]) -> None:
    """Append these lines in one step, so that agents that start at the same time lose none."""
    if not lines:
        return
    make_private_folder(agent_dir)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(os.path.join(agent_dir, name), flags, 0o600)
    try:
        os.write(descriptor, b"".join(codec.encode(line) + b"\n" for line in lines))
    finally:
        os.close(descriptor)
