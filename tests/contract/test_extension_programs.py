"""Programs that extensions run with `ctx.exec`: nothing of them is left, whatever ends Pigeon."""

from __future__ import annotations

import signal
import sys
import uuid

import pytest

from support.agent_folders import AgentFolders, extension
from support.agent_process import Start
from support.contract import proves
from support.processes import eventually, kill_all, processes_with

pytestmark = [
    pytest.mark.by_exec,  # how the process ends is the subject
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has subreapers"),
]
RUNS = """
@ext.command("run")
async def run(args, ctx):
    nap = "exec -a " + args + " sleep 600"
    line = "setsid bash -c '" + nap + "' & (setsid bash -c '(" + nap + ") & exit' &); " + nap
    ran = await ctx.exec("bash", ["-c", line])
    ctx.ui.notify("it has ended: " + repr(ran.killed))
"""


@proves("extension.exec_ends")
@pytest.mark.parametrize("death", ["SIGKILL", "SIGTERM", "end of input"])
def test_a_program_and_what_it_detached_end_with_the_agent(start: Start, folders: AgentFolders, death: str) -> None:
    marker = f"nap-{uuid.uuid4().hex}"
    host = start(*extension(folders, RUNS))
    try:
        host.ask("prompt", message=f"/run {marker}")
        assert eventually(lambda: len(processes_with(f"{marker}\0")) == 3), "itself, one session, one forked twice"
        if death == "end of input":
            host.close_stdin()
        else:
            host.signal(signal.Signals[death])
        host.wait_exit()
        assert eventually(lambda: processes_with(marker) == [])
    finally:
        kill_all(processes_with(marker))


@proves("extension.exec_timeout")
def test_a_program_whose_time_is_over_takes_along_what_it_started(start: Start, folders: AgentFolders) -> None:
    marker = f"nap-{uuid.uuid4().hex}"
    host = start(*extension(folders, RUNS.replace("line])", "line], timeout=1)")))
    try:
        host.ask("prompt", message=f"/run {marker}")
        assert host.wait_event("extension_ui_request", method="notify")["message"] == "it has ended: True"
        assert eventually(lambda: processes_with(marker) == [])
    finally:
        kill_all(processes_with(marker))
