"""Servers that misbehave: each is reported, none delays what does not need it, and the others go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pigeon
from pigeon.mcp.connector.main import NOT_INSTALLED
from pigeon.mcp.connector_process import make_connector_command
from pigeon.system.extras import make_install_command
from pigeon.testing import call
from support.processes import processes_in
from support.sdk_agents import ServedAgents, scripted_server, tool_results

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_servers_that_cannot_be_connected_say_why_and_delay_nothing(agents: ServedAgents) -> None:
    modes = ("hangs", "silent_lists", "only_garbage", "dies", "refuses")
    bad = {mode: scripted_server(mode, startupTimeoutMs=1500) for mode in modes}
    missing = {"missing": {"command": "no-such-program"}, "nowhere": scripted_server(cwd="/no/such/folder")}
    agents.write({**bad, **missing, "good": scripted_server()})
    async with agents.agent(wait=False) as agent:
        assert (await agent.run("hello")).ended == "done"
        meanwhile = {state.name: state.status for state in (await agent.get_mcp_servers()).servers}
        assert meanwhile["hangs"] == "connecting", "the prompt did not wait"
        states = await agents.wait_until_connected(agent)
    said = {name: str(state.error) for name, state in states.items()}
    steps = {name: state.step for name, state in states.items() if state.status == "failed"}
    assert steps == {
        "hangs": "initialize",
        "silent_lists": "list",
        "only_garbage": "initialize",
        "dies": "initialize",
        "refuses": "initialize",
        "missing": "start",
        "nowhere": "start",
    }
    assert "has not answered within 1.5 s" in said["hangs"]
    assert "Welcome to the server!" in said["only_garbage"]
    assert "ended with exit code 3" in said["dies"]
    assert "cannot open the database" in said["dies"]
    assert "no license was found" in said["refuses"]
    assert "was not found" in said["missing"]
    assert "/no/such/folder does not exist" in said["nowhere"]
    assert states["good"].status == "connected"


async def test_the_process_that_holds_connections_runs_nothing_that_variables_lead_it_to(tmp_path: Path) -> None:
    for name in ("sitecustomize", "json", "asyncio", "mcp"):
        (tmp_path / f"{name}.py").write_text("import os; os.write(2, b'planted')\n")
    for line, planted in (make_connector_command(), False), ([sys.executable, "-c", "import json"], True):
        ran = await asyncio.create_subprocess_exec(
            *line, cwd="/", env={"PYTHONPATH": str(tmp_path)}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert (b"planted" in (await ran.communicate())[1]) is planted


async def test_noise_floods_and_endless_lists_keep_no_tool_from_being_called(agents: ServedAgents) -> None:
    modes = ("garbage", "wrong_ids", "floods_stderr", "floods_notifications", "endless_pages")
    agents.write({mode: scripted_server(mode) for mode in modes} | {"good": scripted_server()})
    names = [*(f"mcp__{mode}__echo" for mode in modes[:4]), "mcp__endless_pages__page_3", "mcp__good__echo"]
    async with agents.agent(*[call(name, text="x") for name in names], "Done.") as agent:
        states = await agents.wait_until_connected(agent)
        assert {state.status for state in states.values()} == {"connected"}
        assert len(states["endless_pages"].tools) == 200
        assert "more than 200 pages" in str(states["endless_pages"].error)
        assert tool_results(await agent.run("go")) == ["x", "x", "x", "x", "did page_3", "x"]


async def test_a_server_that_writes_garbage_without_end_is_given_up(agents: ServedAgents) -> None:
    agents.write({"noise": scripted_server("floods_stdout")})
    async with agents.agent(wait=False) as agent:
        events = agent.events()
        async for event in events:
            if isinstance(event, pigeon.McpServerChanged) and "something other than messages" in str(
                event.server.error
            ):
                break


async def test_calls_that_are_not_answered_fail_and_a_server_that_dies_is_started_again(agents: ServedAgents) -> None:
    servers = {
        "silent": scripted_server("never_answers_calls", timeout=200),
        "dying": scripted_server(),
        "huge": scripted_server("huge_result"),
        "misfit": scripted_server("misfit_results"),
    }
    agents.write(servers)
    calls = (
        call("mcp__silent__echo"),
        call("mcp__huge__echo"),
        call("mcp__misfit__echo"),
        call("mcp__dying__die"),
        call("mcp__dying__echo", text="y"),
    )
    async with agents.agent(*calls, "Done.") as agent:
        silent, huge, misfit, died, again = tool_results(await agent.run("go"))
    assert silent == "The tool server silent has failed: no answer within 0.2 s"
    assert "more than 32 MB" in huge
    assert misfit.startswith(
        "The tool server misfit has failed: the server's answer does not fit the protocol (content: "
    )
    assert "The tool server dying has failed" in died
    assert again == "y", "the call has waited for the new process"


async def test_without_the_package_there_is_one_clear_message(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, which does not find what the package brings along."""
    agents.write({"one": scripted_server(), "two": scripted_server()})
    hidden = agents.folder / "hidden" / "httpx2"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'httpx2'\", name='httpx2')\n")
    program = [sys.executable, "-m", "pigeon", "--mode", "rpc", "--model", "demo", "--no-session"]
    environment = {**os.environ, "PIGEON_CODING_AGENT_DIR": str(agents.home), "PYTHONPATH": str(hidden.parent)}
    process = await asyncio.create_subprocess_exec(
        *program, cwd=agents.work, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"id":1,"type":"get_state"}\n')
    notices = []
    async for line in process.stdout:
        record = json.loads(line)
        if record.get("method") == "notify":
            notices.append(record["message"])
            break
    process.stdin.write(b'{"id":2,"type":"prompt","message":"hello"}\n')
    async for line in process.stdout:
        record = json.loads(line)
        assert record.get("method") != "notify"
        if record["type"] == "agent_settled":
            break
    process.stdin.close()
    assert await process.wait() == 0
    told = f"{NOT_INSTALLED} (httpx2 is missing). Install them with: {make_install_command('mcp')}"
    assert notices == [told]


async def test_nothing_survives_an_agent_that_is_killed(agents: ServedAgents) -> None:
    log = agents.folder / "log"
    agents.write({"one": scripted_server("ends_late", env={"LOG": str(log)})})
    program = [sys.executable, "-m", "pigeon", "--mode", "rpc", "--model", "demo", "--no-session"]
    environment = {**os.environ, "PIGEON_CODING_AGENT_DIR": str(agents.home)}
    process = await asyncio.create_subprocess_exec(
        *program, cwd=agents.work, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"id":1,"type":"hello","features":["mcp"]}\n')
    async for line in process.stdout:
        if b'"connected"' in line:
            break
    descriptors = [os.pidfd_open(pid) for pid in processes_in(str(log))]
    assert descriptors
    process.send_signal(signal.SIGKILL)
    await process.wait()
    loop = asyncio.get_running_loop()
    for descriptor in descriptors:
        gone = asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        await gone.wait()
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_nothing_of_servers_is_loaded_before_the_first_answer(agents: ServedAgents) -> None:
    agents.write({"one": scripted_server("hangs")})
    program = (
        "import asyncio, sys\n"
        "from pigeon.app.build import build\n"
        "from pigeon.app.environment import environment_of_process\n"
        "from pigeon.app.options import AgentOptions\n"
        "async def main():\n"
        f"    options = AgentOptions(model='demo', no_session=True, agent_dir={str(agents.home)!r})\n"
        "    built = await build(options, environment_of_process())\n"
        "    print([name for name in sys.modules if name == 'mcp' or name.startswith('pigeon.mcp.')])\n"
        "    print(len(built.session.dependencies.tool_servers.state().servers))\n"
        "    await built.session.close()\n"
        "    await built.lifecycle.stop()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=agents.work, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert printed.decode().split("\n")[:2] == ["['pigeon.mcp.configured_servers']", "1"]
