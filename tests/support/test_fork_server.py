"""A forked agent is what a started one is, as far as a program can tell from inside; and the server outlives nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders, extension
from support.agent_process import RpcProcess, light_command_line
from support.fork_server import can_fork_agents
from support.processes import eventually, is_alive

pytestmark = pytest.mark.skipif(not can_fork_agents(), reason="agents are not forked here")

LOOKS_AT_ITSELF = """
import gc, json, os, resource, signal, sys, threading

main = sys.modules["__main__"]
seen = {
    "arguments": sys.argv, "path": sys.path, "executable": [sys.executable, sys.prefix, list(sys.orig_argv[:1])],
    "main": [main.__name__, main.__file__, main.main.__module__],
    "folder": os.getcwd(), "environment": dict(os.environ), "umask": os.umask(0o22),
    "leads its session": os.getsid(0) == os.getpgrp() == os.getpid(),
    "name": open("/proc/self/comm").read(),
    "handlers": {int(one): str(signal.getsignal(one)).split(" at ")[0] for one in signal.valid_signals()},
    "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
    "streams": [[one.encoding, one.errors, one.line_buffering] for one in (sys.stdin, sys.stdout, sys.stderr)],
    "descriptors": {name: os.readlink(f"/proc/self/fd/{name}").split(":")[0] for name in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{name}")},
    "garbage": [gc.isenabled(), gc.get_threshold()],
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE), "switches": str(sys.flags),
}
with open("seen.json", "w") as file:
    json.dump(seen, file)
"""
WORKER = """
import sys
from pathlib import Path
from support.agent_folders import AgentFolders
from support.fork_server import fork_server
from support.agent_process import RpcProcess, command_line
agent = RpcProcess(AgentFolders(Path(sys.argv[1])), "--no-session", "--model", "demo")
agent.ask("get_state")
print(fork_server(command_line()[0]).pid, agent.pid, flush=True)
sys.stdin.read()
"""


def seen_from_inside(folders: AgentFolders, by_exec: bool) -> dict[str, Any]:
    options = [*extension(folders, LOOKS_AT_ITSELF), "--no-session", "--model", "demo"]
    with RpcProcess(folders, *options, env={"ODD": "\udcff ü"}, by_exec=by_exec) as agent:
        agent.ask("get_state")
        assert not agent.since(0, "extension_error")
    seen = json.loads((folders.work / "seen.json").read_text())
    seen["environment"].pop("RPC_PROCESS_MARK")
    seen["descriptors"] = {name: to for name, to in seen["descriptors"].items() if not to.startswith(str(folders.temp))}
    return dict(seen)


def test_a_forked_agent_sees_itself_as_a_started_one(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    folders.configure()
    assert seen_from_inside(folders, by_exec=False) == seen_from_inside(folders, by_exec=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_the_signal_that_ends_a_forked_agent_is_known(tmp_path: Path, number: int) -> None:
    agent = RpcProcess(AgentFolders(tmp_path), "--no-session", "--model", "demo")
    agent.ask("get_state")
    os.kill(agent.pid, number)
    assert agent.wait_exit() == -number
    assert not os.path.exists(f"/proc/{agent.pid}")


def test_each_forked_agent_has_randomness_of_its_own(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    rolls = []
    for _ in range(2):
        options = extension(folders, "import random\nopen('roll', 'w').write(str(random.random()))")
        with RpcProcess(folders, *options, "--no-session", "--model", "demo") as agent:
            agent.ask("get_state")
        rolls.append((folders.work / "roll").read_text())
    assert rolls[0] != rolls[1]


def test_server_and_agents_end_with_the_worker_whatever_ends_it(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "scripts")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as worker:
        assert worker.stdout is not None
        started = [int(pid) for pid in worker.stdout.readline().split()]
        assert len(started) == 2
        assert all(map(is_alive, started))
        worker.kill()
    assert eventually(lambda: not any(map(is_alive, started)))


def relay(folders: AgentFolders) -> subprocess.Popen[bytes]:
    words = [*light_command_line(), "--mode", "rpc", "--no-session", "--model", "demo"]
    pipe = subprocess.PIPE
    started = subprocess.Popen(words, stdin=pipe, stdout=pipe, cwd=folders.work, env=folders.environment(), bufsize=0)
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write(b'{"type":"get_state"}\n')
    assert b'"success":true' in started.stdout.read(65536)
    return started


def test_a_relay_ends_as_the_agent_does(tmp_path: Path) -> None:
    with relay(AgentFolders(tmp_path)) as ended_by_input:
        ended_by_input.communicate(timeout=30)
    with relay(AgentFolders(tmp_path)) as ended_by_signal:
        ended_by_signal.terminate()
        ended_by_signal.wait(30)
    assert (ended_by_input.returncode, ended_by_signal.returncode) == (0, 143)


def test_a_relay_that_is_killed_takes_its_agent_along(tmp_path: Path) -> None:
    with relay(AgentFolders(tmp_path)) as started:
        started.kill()
        assert started.stdin is not None
        assert started.stdout is not None
        assert started.stdout.read() == b"", "the agent held its output open"
        started.wait(30)
