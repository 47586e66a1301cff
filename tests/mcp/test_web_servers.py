"""Servers behind HTTP: both forms, headers, and signing in."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import stat
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fakes.mcp_web_server import WebToolServer, follow
from pigeon.mcp.connector.device_grant import DEVICE_GRANT
from pigeon.testing import call
from support.sdk_agents import ServedAgents, tool_results

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


@pytest.mark.parametrize(("status", "signs_in"), [(405, False), (404, False), (400, False), (405, True)])
async def test_where_the_streamable_form_is_refused_the_older_one_is_used_at_the_same_address(
    agents: ServedAgents, status: int, signs_in: bool
) -> None:
    async with WebToolServer(only_older=status, signs_in=signs_in) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=Browser()) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
            (state,) = (await agent.get_mcp_servers()).servers
    assert (state.status, state.transport) == ("connected", "sse")


async def test_an_address_that_knows_neither_form_says_what_both_were_answered(agents: ServedAgents) -> None:
    async with WebToolServer() as server:
        agents.write({"web": {"url": f"{server.base}/nothing"}})
        async with agents.agent() as agent:
            (state,) = (await agent.get_mcp_servers()).servers
    assert (state.status, state.step) == ("failed", "initialize")
    assert str(state.error) == (
        "web: the server answered 404 Not Found. The older form of HTTP (server-sent events) does not work "
        "either: the server answered 404 Not Found"
    )


async def test_headers_have_their_variables_filled_in_and_are_masked(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_TOKEN", "tok-5f3a9c1e77d2")
    async with WebToolServer(header=("x-token", "Bearer tok-5f3a9c1e77d2")) as server:
        agents.write({"web": {"url": f"{server.base}/mcp", "headers": {"X-Token": "Bearer ${DOCS_TOKEN}"}}})
        async with agents.agent(call("bash", command="echo $((1)) tok-5f3a9c1e77d2"), "Done.") as agent:
            states = await agents.wait_until_connected(agent)
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
        (back,) = parse_qs(urlsplit(address).query)["redirect_uri"]
        assert back.startswith("http://127.0.0.1:")
        await follow(f"{back}?code=from-another-page&state=guessed")
        if not self.pastes:
            await follow(address)
            return None
        return await _last_address(address)


async def _last_address(address: str) -> str:
    """Where the browser would be led, which cannot reach us."""
    import http.client

    def ask_server() -> str:
        place = urlsplit(address)
        connection = http.client.HTTPConnection(str(place.hostname), place.port)
        connection.request("GET", f"{place.path}?{place.query}")
        location = connection.getresponse().getheader("Location")
        connection.close()
        return str(location)

    import asyncio

    return await asyncio.to_thread(ask_server)


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
        others = [one for one in agents.folder.rglob("*") if one.is_file() and one != file]
        told = [one for one in others if re.search(rb"(access|refresh)-[0-9a-f]{24}", one.read_bytes())]
        assert not told, "a token stands in no other file, also not in sessions"


async def test_a_kept_sign_in_that_cannot_be_read_is_replaced_by_another(agents: ServedAgents) -> None:
    browser = Browser()
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        file, name = agents.home / "auth.json", f"mcp:{server.base}/mcp"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: {"tokens": "none", "expires": []}}))
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=browser) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
        assert len(browser.asked) == 1
        assert json.loads(file.read_text())[name]["tokens"]["access_token"] in server.tokens


async def test_a_sign_in_waits_beside_the_run_for_another_process_that_writes_the_file(agents: ServedAgents) -> None:
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        file = agents.home / "auth.json"
        folder = os.open(agents.home, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=Browser()) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
            assert not file.exists()
            os.close(folder)
        assert list(json.loads(file.read_text())) == [f"mcp:{server.base}/mcp"]


class Device:
    """Answers the question to enter a code on another device."""

    def __init__(self, *, signs_in: bool = True) -> None:
        self.signs_in = signs_in
        self.asked: list[str] = []

    async def __call__(self, question: Any) -> bool:
        self.asked.append(f"{question.title}\n{question.message}")
        return self.signs_in


@pytest.mark.parametrize("configured", [True, False])
async def test_a_person_signs_in_on_another_device(agents: ServedAgents, configured: bool) -> None:
    device = Device()
    async with WebToolServer(signs_in=True, device=True, browser=configured) as server:
        server.device_answers = ["authorization_pending"]
        agents.write({"web": {"url": f"{server.base}/mcp", **({"oauth": {"flow": "device"}} if configured else {})}})
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=device) as agent:
            result = await agent.run("greet")
            assert tool_results(result) == ["hello from the web"]
        (asked,) = device.asked
        assert "web" in asked
        assert "WDJB-MJHT" in asked
        assert f"{server.base}/activate\n" in asked
        assert f"{server.base}/activate?user_code=WDJB-MJHT" in asked
        assert "device-secret-77" not in asked + str(result.messages)
        assert server.grants == [DEVICE_GRANT] * 2
        assert DEVICE_GRANT in server.registered[0]["grant_types"]
        assert {form["resource"] for form in server.forms} == {f"{server.base}/mcp"}
        assert {form["client_id"] for form in server.forms} == {"client-1"}
        kept = json.loads((agents.home / "auth.json").read_text())[f"mcp:{server.base}/mcp"]
        assert kept["tokens"]["access_token"] in server.tokens
        assert "device-secret-77" not in json.dumps(kept)


@pytest.mark.parametrize(
    ("answer", "signs_in", "said"),
    [
        ("access_denied", True, "declined at the authorization server"),
        ("expired_token", True, "code expired"),
        ("invalid_client", True, "sign-in failed: 400 Bad Request: invalid_client"),
        ("authorization_pending", False, "the sign-in was declined"),
    ],
)
async def test_a_sign_in_on_another_device_that_fails_says_why(
    agents: ServedAgents, answer: str, signs_in: bool, said: str
) -> None:
    async with WebToolServer(signs_in=True, device=True, browser=False) as server:
        server.device_answers = [answer] * 1000
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with agents.agent(on_dialog=Device(signs_in=signs_in)) as agent:
            (state,) = (await agent.get_mcp_servers()).servers
    assert (state.status, said in str(state.error)) == ("sign_in", True), state.error


async def test_a_device_flow_that_is_wanted_and_not_offered_is_said(agents: ServedAgents) -> None:
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp", "oauth": {"flow": "device"}}})
        async with agents.agent(on_dialog=Device()) as agent:
            (state,) = (await agent.get_mcp_servers()).servers
    assert "offers no sign-in on another device" in str(state.error)


async def test_a_token_that_is_refused_in_the_middle_is_refreshed_and_then_a_person_signs_in(
    agents: ServedAgents,
) -> None:
    browser = Browser()
    hello = call("mcp__web__hello")
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with agents.agent(hello, "1", hello, "2", hello, "3", on_dialog=browser) as agent:
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
            server.tokens.clear()
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
            assert (server.grants, len(browser.asked)) == (["authorization_code", "refresh_token"], 1)
            server.tokens.clear()
            server.refresh_tokens.clear()
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
            assert (server.grants[2:], len(browser.asked)) == (["refresh_token", "authorization_code"], 2)


async def test_tokens_that_another_agent_has_refreshed_are_taken(agents: ServedAgents) -> None:
    """The token to refresh with is good for one time: who comes second would have to sign in again."""
    browser, hello = Browser(), call("mcp__web__hello")
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with (
            agents.agent(hello, "1", hello, "2", on_dialog=browser) as one,
            agents.agent(hello, "1", on_dialog=browser) as other,
        ):
            assert tool_results(await one.run("greet")) == ["hello from the web"]
            server.tokens.clear()
            assert tool_results(await one.run("greet")) == ["hello from the web"]
            assert tool_results(await other.run("greet")) == ["hello from the web"]
    assert (server.grants, len(browser.asked)) == (["authorization_code", "refresh_token"], 1)


async def test_tokens_that_another_agent_stores_after_the_refusal_are_waited_for(agents: ServedAgents) -> None:
    """It had used up the token to refresh with, and was not done storing what it got."""
    browser, file = Browser(), agents.home / "auth.json"

    def store_newer_tokens() -> None:
        stored = json.loads(file.read_text())
        stored[f"mcp:{server.base}/mcp"]["tokens"] |= {"access_token": "newer"}
        server.tokens.add("newer")
        file.write_text(json.dumps(stored))

    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=browser) as agent:
            server.tokens.clear()
            server.refresh_tokens.clear()
            server.on_refused = partial(asyncio.get_running_loop().call_later, 0.3, store_newer_tokens)
            assert tool_results(await agent.run("greet")) == ["hello from the web"]
    assert len(browser.asked) == 1


async def test_a_sign_in_that_is_needed_in_the_middle_and_not_made_is_the_state_of_the_server(
    agents: ServedAgents,
) -> None:
    answers = [Browser(), None]

    async def dialog(question: Any) -> str | None:
        answer = answers.pop(0) if answers else None
        return None if answer is None else await answer(question)

    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp", "timeout": 5000}})
        async with agents.agent(call("mcp__web__hello"), "Done.", on_dialog=dialog) as agent:
            server.tokens.clear()
            server.refresh_tokens.clear()
            (said,) = tool_results(await agent.run("greet"))
            assert "the sign-in was declined" in said
            events = agent.events()
            while (await agent.get_mcp_servers()).servers[0].status != "sign_in":
                await anext(events)


async def test_a_secret_of_the_configuration_is_sent_and_a_configured_scope_counts(agents: ServedAgents) -> None:
    async with WebToolServer(signs_in=True) as server:
        oauth = {"clientId": "known", "clientSecret": "hush-hush-4711", "scope": "read"}
        agents.write({"web": {"url": f"{server.base}/mcp", "oauth": oauth}})
        browser = Browser()
        async with agents.agent(on_dialog=browser) as agent:
            (state,) = (await agent.get_mcp_servers()).servers
            assert state.status == "connected", state.error
    assert "scope=read" in browser.asked[0]
    assert "hush-hush-4711" not in browser.asked[0]
    (form,) = server.forms
    assert (form["client_id"], "code_verifier" in form) == ("known", True)
    assert server.client_secrets == ["hush-hush-4711"]


async def test_a_sign_in_that_nobody_can_make_is_said(agents: ServedAgents) -> None:
    async with WebToolServer(signs_in=True) as server:
        agents.write({"web": {"url": f"{server.base}/mcp"}})
        async with agents.agent(unattended=True) as agent:
            (state,) = (await agent.get_mcp_servers()).servers
    assert state.status == "sign_in"
    assert "sign-in is needed" in str(state.error)
