"""Where the sessions of started agents are: each below the session of the agent that has started it."""

from __future__ import annotations

import os
from contextlib import suppress

from pigeon.session.history.entry_line import line_from_bytes
from pigeon.session.history.session_folders import SessionFolders, is_agents_folder
from pigeon.system.files import open_regular
from pigeon.wire.answers import SubagentPage

LONGEST_HEADER = 1 << 20


def list_agent_folders(file: str) -> list[str]:
    """The folders with the sessions of agents below a session, however deep."""
    return [folder for folder, _, _ in os.walk(SessionFolders.agents_folder_of(file))]


def find_agent_folders(folder: str) -> list[str]:
    """The folders with the sessions of agents below a folder of sessions."""
    with suppress(OSError), os.scandir(folder) as found:
        tops = sorted(item.path for item in found if is_agents_folder(item.name) and item.is_dir())
        return [below for top in tops for below, _, _ in os.walk(top) if is_agents_folder(below)]
    return []


def find_agent_file(file: str, session_id: str) -> str | None:
    """The session of an agent below this one, however deep; None if there is none."""
    files = (path for folder in list_agent_folders(file) for path in SessionFolders.list_files(folder))
    return next((path for path in files if SessionFolders.id_in_name(path) == session_id), None)


def remove_unwritten_file(path: str) -> bool:
    """Remove a session whose process died before its first line was whole; returns False for any other."""
    with suppress(OSError), open(open_regular(path), "rb") as file:
        if not file.readline(LONGEST_HEADER).endswith(b"\n") and file.read(1) == b"":
            os.unlink(path)
            return True
    return False


def read_page(path: str, start: int) -> SubagentPage:
    """The whole lines of a session file from a byte on; from the beginning if the file is shorter than that."""
    if not SessionFolders.has_file(path):
        return SubagentPage(session_file=path, from_byte=start, next_byte=start, reset=False, entries=[], messages=[])
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        reset = start > size
        first = 0 if reset else start
        file.seek(first)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    lines = [line for raw in whole.split(b"\n") if raw.strip() and (line := line_from_bytes(raw)) is not None]
    return SubagentPage(
        session_file=path,
        from_byte=first,
        next_byte=first + len(whole),
        reset=reset,
        entries=[line.to_plain() for line in lines],
        messages=[line.to_plain().get("message") for line in lines if line.type == "message" and line.role != "system"],
    )
