"""Tool servers as hosts see them, in the real program."""

from __future__ import annotations

from typing import Any

from fakes.contract_manifest import proves
from fakes.mcp_agents import scripted_server
from fakes.model_server import Call, ModelServer
from fakes.permission_talk import calls, results
from fakes.rpc_process import Start


@proves("mcp.set", "mcp.changed", "mcp.tools", "mcp.waits")
def test_a_host_sets_tool_servers_hears_of_their_state_and_the_model_calls_their_tools(
    start: Start, server: ModelServer
) -> None:
    host = start()
    assert host.ask("hello", features=["mcp"])["features"] == ["mcp"]
    given: dict[str, Any] = {"one": scripted_server(), "wrong": {"args": []}, "off": scripted_server(disabled=True)}
    states = {state["name"]: state for state in host.ask("set_mcp_servers", servers=given)["servers"]}
    assert (states["one"]["status"], states["one"]["source"]) == ("connecting", "host")
    assert states["wrong"]["status"] == "failed"
    assert "needs command" in states["wrong"]["error"]
    # The server is not connected yet: the call waits for it.
    assert results(host, calls(host, server, Call("mcp__one__echo", {"text": "hi"}))) == [(False, "hi")]
    assert [event["server"]["status"] for event in host.since(0, "mcp_server_changed")][-1] == "connected"
    ((failed, text),) = results(host, calls(host, server, Call("mcp__off__echo", {"text": "hi"})))
    assert failed
    assert "the tool server off is disabled" in text
    assert host.ask("set_mcp_servers", servers={})["servers"] == []
    host.wait(lambda record: record["type"] == "mcp_server_changed" and record.get("removed") is True)
    assert results(host, calls(host, server, Call("mcp__one__echo", {}))) == [(True, "Tool mcp__one__echo not found")]


@proves("mcp.refused")
def test_what_is_no_set_of_servers_is_refused_by_its_field(start: Start) -> None:
    host = start()
    assert "servers" in host.refused("set_mcp_servers")
    assert "servers" in host.refused("set_mcp_servers", servers=[])
    assert "nobody" in host.refused("connect_mcp_server", name="nobody")
    assert host.ask("get_mcp_servers") == {"servers": [], "problems": []}
    assert host.ask("get_mcp_resources") == {"resources": []}


@proves("mcp.complete")
def test_what_a_message_may_name_of_servers_is_completed(start: Start) -> None:
    host = start()
    assert host.ask("complete_mcp", text="see @") == {"replaces": "", "completions": []}
    assert "text" in host.refused("complete_mcp")
    host.ask("hello", features=["mcp"])
    host.ask("set_mcp_servers", servers={"one": scripted_server()})
    host.wait(lambda record: record.get("server", {}).get("status") == "connected")
    found = host.ask("complete_mcp", text="see @one:note://o")
    assert (found["replaces"], [one["text"] for one in found["completions"]]) == ("one:note://o", ["one:note://one"])
    found = host.ask("complete_mcp", text="/mcp__one__poem pi")
    assert (found["replaces"], [one["text"] for one in found["completions"]]) == ("pi", ["pigeons"])


@proves("mcp.unasked")
def test_a_host_that_does_not_ask_hears_of_failures_as_notices_only(start: Start) -> None:
    host = start()
    host.ask("set_mcp_servers", servers={"gone": {"command": "no-such-program"}})
    notice = host.wait(lambda record: record.get("method") == "notify")
    assert "no-such-program" in notice["message"]
    assert not host.since(0, "mcp_server_changed")
