from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pigeon.transport import stdio
from support.source_tree import ROOT

CLAIM = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from pigeon.transport import stdio
given, taken = stdio.claim_stdio()
"""
STRAY = """
print("a stray print", flush=True)
os.write(1, b"a stray write\\n")
subprocess.run(["sh", "-c", "echo a child; cat; ls /proc/$$/fd | tr '\\n' ' '"], check=True)
print("input is", repr(sys.stdin.read()))
os.write(taken, b"said: " + os.read(given, 100))
"""


def ran(script: str, *shell: str) -> subprocess.CompletedProcess[bytes]:
    words = [*shell, sys.executable, "-I", "-c", CLAIM + script, str(ROOT / "src")]
    return subprocess.run(words, input=b"hello", capture_output=True, timeout=20, check=True)


def test_only_the_protocol_reaches_the_host() -> None:
    done = ran(STRAY)
    assert done.stdout == b"said: hello"
    for text in (b"a stray print", b"a stray write", b"a child", b"input is ''"):
        assert text in done.stderr


def test_the_private_descriptors_are_not_for_children() -> None:
    done = ran("print(given, taken, os.get_inheritable(given), os.get_inheritable(taken), os.get_inheritable(1))")
    given, taken, *inherited = done.stderr.split()
    assert inherited == [b"False", b"False", b"True"]
    assert min(int(given), int(taken)) > 2


def test_a_host_that_closed_descriptors_does_not_mix_them_up(tmp_path: Path) -> None:
    note = tmp_path / "note"
    script = f"""
other = os.open({str(note)!r}, os.O_CREAT | os.O_WRONLY)
print("stray", flush=True)
os.write(taken, b"nobody hears")
os.write(other, b"kept %d" % len(os.read(given, 5)))
"""
    done = ran(script, "sh", "-c", 'exec "$@" <&- >&-', "sh")
    assert note.read_bytes() == b"kept 0"
    assert done.stdout == b""


def test_nothing_but_the_two_private_descriptors_is_opened() -> None:
    done = ran("print(given, taken, *os.listdir('/proc/self/fd'))")
    given, taken, *opened = map(int, done.stderr.split())
    assert sorted(opened) == sorted([0, 1, 2, 3, given, taken])  # 3 is the listing itself


def test_a_pipe_to_the_host_is_made_as_wide_as_the_system_allows() -> None:
    source, sink = os.pipe()
    try:
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, stdio.PIPE_SIZE)
    except OSError:
        pytest.skip("the system allows no more")
    finally:
        os.close(source)
        os.close(sink)
    done = ran("import fcntl; print(fcntl.fcntl(taken, fcntl.F_GETPIPE_SZ))")
    assert int(done.stderr) == stdio.PIPE_SIZE
