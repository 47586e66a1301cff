"""The model of the settings in every front end: it answers, or a person learns which setting of which file is wrong."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import pigeon
from fakes.editor_client import Editor, RpcFailure
from fakes.model_server import ModelServer
from pigeon.wire.errors import PigeonError
from support.agent_folders import AgentFolders, model, providers
from support.agent_process import RpcProcess, run_pigeon
from support.pigeon_serve import PigeonServer
from support.terminal import PtyChat

CASES = {
    "usable": {"defaultModel": "fake/fake-2"},
    "without a key": {"defaultModel": "locked-1"},
    "unknown": {"defaultModel": "nonsense"},
    "of another provider": {"defaultProvider": "fake", "defaultModel": "locked-1"},
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


class Setup:
    """The folders of an agent with a usable and an unusable provider, and these settings."""

    def __init__(self, root: Path, server: ModelServer, settings: dict[str, str]) -> None:
        self.folders = AgentFolders(root)
        self.folders.agent = self.folders.home / ".pigeon" / "agent"
        self.folders.agent.mkdir(parents=True)
        known = providers(server.url)
        locked = {**known["providers"]["fake"], "apiKey": "$NO_SUCH_KEY", "models": [model("locked-1")]}
        known["providers"]["locked"] = locked
        self.folders.configure(known, {**settings, "retry": {"enabled": False}})

    @property
    def variables(self) -> dict[str, str]:
        return {**self.folders.environment(), "PIGEON_CODING_AGENT_DIR": str(self.folders.agent)}


async def print_answer(setup: Setup) -> str:
    return run_pigeon(setup.folders, "-p", "hello").err


async def print_events(setup: Setup) -> str:
    return run_pigeon(setup.folders, "--mode", "json", "hello").err


async def run_batch(setup: Setup) -> str:
    (setup.folders.work / "tasks.jsonl").write_text(json.dumps({"prompt": "hello"}))
    return run_pigeon(setup.folders, "batch", "tasks.jsonl", "--out", "out").err


async def drive_over_stdio(setup: Setup) -> str:
    with RpcProcess(setup.folders) as agent:
        answer = agent.request("prompt", message="hello")
        if answer["success"]:
            agent.wait_end()
        notices = [str(one["message"]) for one in agent.since(0) if one.get("method") == "notify"]
        assert notices or answer["success"]
        return "\n".join([*notices, agent.stderr])


async def use_library(setup: Setup) -> str:
    async with pigeon.Agent(env=setup.variables, cwd=setup.folders.work, agent_dir=setup.folders.agent) as agent:
        with suppress(PigeonError):
            await agent.run("hello")
        return "\n".join(agent.warnings)


async def use_editor(setup: Setup) -> str:
    with Editor(setup.folders) as editor:
        editor.initialize()
        try:
            session = editor.new()
            editor.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hello"}])
        except RpcFailure as failure:
            return f"{failure.message}\n{json.dumps(editor.messages, ensure_ascii=False)}"
        return json.dumps(editor.messages, ensure_ascii=False)


async def chat(setup: Setup) -> str:
    variables = {"PIGEON_CODING_AGENT_DIR": str(setup.folders.agent)}
    with PtyChat(setup.folders.home.parent, [], columns=400, env=variables) as shown:
        shown.send_line("hello")
        return shown.until(lambda text: "cannot be used" in text or "Hello from the model." in text)


async def serve(setup: Setup) -> str:
    server = PigeonServer(setup.folders)
    try:
        made = server.call("POST", "/api/sessions", {"cwd": str(setup.folders.work)})
        url = f"{server.url.replace('http', 'ws', 1)}/{made['id']}"
        async with pigeon.Client(url=url, token=server.token) as client:
            try:
                await client.run("hello")
            except PigeonError as error:
                return str(error)
        return ""
    finally:
        server.stop()


FRONT_ENDS: list[Callable[[Setup], Awaitable[str]]] = [
    print_answer,
    print_events,
    run_batch,
    drive_over_stdio,
    use_library,
    use_editor,
    chat,
    serve,
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("front_end", FRONT_ENDS, ids=lambda one: one.__name__)
async def test_the_model_of_the_settings_answers_or_the_setting_is_named(
    tmp_path: Path, server: ModelServer, front_end: Callable[[Setup], Awaitable[str]], case: str
) -> None:
    server.answers("Hello from the model.")
    setup = Setup(tmp_path, server, CASES[case])
    shown = await front_end(setup)
    if case == "usable":
        assert [request["model"] for request in server.requests] == ["fake-2"]
        assert "settings.json" not in shown
    else:
        assert server.requests == []
        words = " ".join(shown.split()).replace('\\"', '"')
        assert 'defaultModel "' in words
        assert f"{setup.folders.agent}/settings.json cannot be used" in words
