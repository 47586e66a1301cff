"""Servers behind HTTP: both forms, headers, and signing in."""

from __future__ import annotations

import json
import os
import re
import stat
from typing import Any

import pytest

from fakes.mcp_agents import ServedAgents, tool_results
from fakes.web_tool_server import WebToolServer, follow
from pigeon.testing import call

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("form", ["json", "events", "sse"])
async def test_a_tool_behind_an_address_is_called(agents: ServedAgents, form: str) -> None:
    async with WebToolServer(streams=form == "events") as server:
        entry = {"type": "sse", "url": f"{server.base}/sse"} if form == "sse" else {"url": f"{server.base}/mcp"}
        agents.write({"web": entry})
        async with agents.agent(call("mcp__web__hello"), "Done.") as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
            (state,) = (await agent.get_mcp_servers()).servers
            assert (state.status, state.server_name) == ("connected", "web")


async def test_headers_have_their_variables_filled_in_and_are_masked(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_TOKEN", "tok-5f3a9c1e77d2")
    async with WebToolServer(header=("x-token", "Bearer tok-5f3a9c1e77d2")) as server:
        agents.write({"web": {"url": f"{server.base}/mcp", "headers": {"X-Token": "Bearer ${DOCS_TOKEN}"}}})
        async with agents.agent(call("bash", command="echo $((1)) tok-5f3a9c1e77d2"), "Done.") as agent:
            states = await agents.settled(agent)
            assert states["web"].status == "connected"
            shown = tool_results(await agent.run("show it"))
    assert shown == ["1 ***\n"]


async def test_a_service_that_is_not_there_fails_at_the_first_step(agents: ServedAgents) -> None:
    agents.write({"web": {"url": "http://127.0.0.1:9/mcp"}, "page": {"url": "http://127.0.0.1:9/sse", "type": "sse"}})
    async with agents.agent() as agent:
        states = (await agent.get_mcp_servers()).servers
    assert [(state.status, state.step) for state in states] == [("failed", "connect")] * 2
    assert "no connection" in str(states[0].error)


async def test_an_answer_without_measure_is_given_up(agents: ServedAgents) -> None:
    async with WebToolServer() as server:
        server.huge = True
        agents.write({"web": {"url": f"{server.base}/mcp", "timeout": 20_000}})
        async with agents.agent(call("mcp__web__hello"), "Done.") as agent:
            (text,) = tool_results(await agent.run("greet"))
    assert "larger than 32 MB" in text


class Browser:
    """Answers the question to sign in: by following the address, or by pasting where it led."""

    def __init__(self, pastes: bool = False) -> None:
        self.pastes = pastes
        self.asked: list[str] = []

    async def __call__(self, question: Any) -> str | None:
        self.asked.append(question.title)
        address = re.findall(r"http\S+", question.title)[0]
        if not self.pastes:
            await follow(address)
            return None
        return await _last_address(address)


async def _last_address(address: str) -> str:
    """Where the browser would be led, which cannot reach us."""
    import http.client
    from urllib.parse import urlsplit

    def asked() -> str:
        place = urlsplit(address)
        connection = http.client.HTTPConnection(str(place.hostname), place.port)
        connection.request("GET", f"{place.path}?{place.query}")
        location = connection.getresponse().getheader("Location")
        connection.close()
        return str(location)

    import asyncio

    return await asyncio.to_thread(asked)


@pytest.mark.parametrize("pastes", [False, True])
async def test_a_person_signs_in_once_and_tokens_are_kept_and_refreshed(agents: ServedAgents, pastes: bool) -> None:
    browser = Browser(pastes)
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=browser) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
        file = agents.home / "auth.json"
        kept = json.loads(file.read_text())[f"mcp:{server.base}/mcp"]
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        assert (len(browser.asked), server.grants) == (1, ["authorization_code"])

        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=browser) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
        assert (len(browser.asked), server.grants) == (1, ["authorization_code"])

        kept["expires"] = 1.0
        file.write_text(json.dumps({f"mcp:{server.base}/mcp": kept}))
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=browser) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
        assert (len(browser.asked), server.grants) == (1, ["authorization_code", "refresh_token"])

        server.tokens.clear()
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=browser) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
        assert (len(browser.asked), server.grants[-1]) == (1, "refresh_token")
        text = file.read_text()
        assert [token for token in server.tokens if token in text]


async def test_a_sign_in_that_nobody_can_make_is_said(agents: ServedAgents) -> None:
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with agents.agent(unattended=True) as agent:
            (state,) = (await agent.get_mcp_servers()).servers
    assert state.status == "sign_in"
    assert "sign-in is needed" in str(state.error)
