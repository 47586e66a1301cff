from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from pigeon.frontends.terminal.picker import pick_session
from pigeon.wire.errors import StartupError


def _session(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text(
        f'{{"type":"session","version":3,"id":"{name}","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}}\n'
        '{"type":"message","id":"00000001","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z",'
        f'"message":{{"role":"user","content":"{text}","timestamp":1}}}}\n'
    )
    return path


def _answering(typed: bytes, folder: Path) -> tuple[str | StartupError, bytes]:
    ours, theirs = pty.openpty()
    seen = bytearray()

    def person() -> None:
        while b"Which one?" not in seen:
            seen.extend(os.read(ours, 1024))
        os.write(ours, typed)

    thread = threading.Thread(target=person, daemon=True)
    thread.start()
    try:
        result: str | StartupError = pick_session(str(folder), os.ttyname(theirs))
    except StartupError as error:
        result = error
    thread.join(30)
    os.close(ours)
    os.close(theirs)
    return result, bytes(seen)


def test_a_session_is_chosen_by_its_number(tmp_path: Path) -> None:
    old, new = _session(tmp_path, "old", "first thing"), _session(tmp_path, "new", "second \\u001b[31mthing")
    os.utime(old, (1, 1))
    os.utime(new, (2, 2))
    chosen, shown = _answering(b"2\n", tmp_path)
    assert chosen == str(old)
    assert b"first thing" in shown
    assert not re.search(rb"\x1b\[31m", shown)


@pytest.mark.parametrize("typed", [b"\n", b"9\n", b"x\n"])
def test_anything_else_chooses_nothing(tmp_path: Path, typed: bytes) -> None:
    _session(tmp_path, "one", "hello")
    chosen, _ = _answering(typed, tmp_path)
    assert isinstance(chosen, StartupError)


def test_a_process_without_a_terminal_is_not_ended_by_the_end_of_this_one(tmp_path: Path) -> None:
    _session(tmp_path, "one", "hello")
    program = textwrap.dedent("""
        import os, sys
        from pigeon.frontends.terminal.picker import pick_session
        ours, theirs = os.openpty()
        os.write(ours, b"1\\n")
        chosen = pick_session(sys.argv[1], os.ttyname(theirs))
        os.close(theirs)
        os.close(ours)
        print(chosen)
    """)
    line = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(line, capture_output=True, text=True, start_new_session=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"{tmp_path}/one.jsonl\n"), ended.stderr


def test_without_a_terminal_it_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"--session PATH\|ID or --continue"):
        pick_session(str(tmp_path), str(tmp_path / "no-terminal"))
