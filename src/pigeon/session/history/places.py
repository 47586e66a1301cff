"""Where sessions are kept and what their files are called, exactly as pi does it."""

from __future__ import annotations

import os

from pigeon.system import clock


def default_folder(agent_dir: str, cwd: str) -> str:
    """The folder of one working directory's sessions."""
    flat = cwd[1:] if cwd[:1] in ("/", "\\") else cwd
    for separator in "/\\:":
        flat = flat.replace(separator, "-")
    return os.path.join(agent_dir, "sessions", f"--{flat}--")


def file_name(session_id: str, now_ms: int) -> str:
    """`<time>_<id>.jsonl`, with the characters of the time that file systems dislike replaced."""
    return f"{clock.iso(now_ms).replace(':', '-').replace('.', '-')}_{session_id}.jsonl"


def artifact_folder(session_file: str) -> str:
    """Where the full outputs of a session's tools are kept."""
    return session_file.removesuffix(".jsonl")
