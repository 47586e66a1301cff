"""What of a conversation reaches the model: nothing that it would refuse now and in every later request."""

from __future__ import annotations

import re
from pathlib import Path

from fakes.model_server import Call, ModelServer, Thinking
from support.agent_process import RpcProcess, Start
from support.contract import proves

CAMERA = {"name": "camera", "label": "Camera", "description": "Takes a picture", "parameters": {"type": "object"}}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@proves("history.foreign_thinking")
def test_thinking_stays_with_the_model_that_had_it(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Thinking("private doubts"), "Done.")
    agent.run("go")
    again = server.answers("Yes.")
    agent.run("really?")
    assert "private doubts" in str(again.request)
    agent.ask("set_model", provider="fake", modelId="fake-2")
    asked = server.answers("Sure.")
    agent.run("really?")
    assert "private doubts" not in str(asked.request)
    assert "Done." in str(asked.request)


@proves("history.blank_output")
def test_blank_output_says_that_there_was_none(agent: RpcProcess, server: ModelServer) -> None:
    server.answers(Call("bash", {"command": "echo"}, id="toolu_1"))
    asked = server.answers("nice")
    agent.run("go")
    (result,) = asked.request["messages"][-1]["content"]
    assert result["content"] == "(no output)"


def takes_a_picture(agent: RpcProcess, server: ModelServer) -> Path:
    """The file of a session in which a tool returned a picture."""
    agent.ask("set_host_tools", tools=[CAMERA])
    server.answers(Call("camera", {}, id="toolu_1"))
    server.answers("oh")
    agent.ask("prompt", message="smile")
    (frame,) = agent.wait_count("host_tool_call", 1)
    picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
    result = {"content": [{"type": "text", "text": "too dark"}, picture]}
    agent.send({"type": "host_tool_result", "id": frame["id"], "result": result})
    agent.wait_end()
    return Path(agent.ask("get_state")["sessionFile"])


@proves("history.accepted")
def test_a_session_that_holds_the_picture_of_a_failure_goes_on(start: Start, server: ModelServer) -> None:
    first = start(keeps=True)
    file = takes_a_picture(first, server)
    first.close()
    text = file.read_text("utf-8")
    assert text.count('"isError":false') == 1
    file.write_text(text.replace('"isError":false', '"isError":true'), "utf-8")
    second = start("--session", str(file), keeps=True)
    asked = server.answers("fine")
    second.run("and now?")
    result, lead, picture = asked.request["messages"][2]["content"]
    assert (result["content"], result["is_error"]) == ("too dark", True)
    assert "toolu_1" in lead["text"]
    assert picture["source"]["data"] == PNG


@proves("tools.sent_names")
def test_a_host_tool_with_an_odd_name_is_called_under_that_name(agent: RpcProcess, server: ModelServer) -> None:
    odd = {"name": "my tools.snap!", "description": "Takes a picture", "parameters": {"anyOf": [{"type": "object"}]}}
    agent.ask("set_host_tools", tools=[odd])
    first = server.answers(Call("my_tools_snap_", {}, id="toolu_1"))
    asked = server.answers("oh")
    agent.ask("prompt", message="smile")
    (frame,) = agent.wait_count("host_tool_call", 1)
    assert frame["toolName"] == "my tools.snap!"
    agent.send({"type": "host_tool_result", "id": frame["id"], "result": {"content": [{"type": "text", "text": "ok"}]}})
    agent.wait_end()
    (tool,) = [tool for tool in first.request["tools"] if tool["name"].startswith("my")]
    assert (tool["name"], tool["input_schema"]) == ("my_tools_snap_", {"type": "object", "properties": {}})
    assert asked.wait_arrived()["messages"][1]["content"][0]["name"] == "my_tools_snap_"


@proves("prompt.docs")
def test_the_model_is_told_where_the_pages_about_its_own_program_are(agent: RpcProcess, server: ModelServer) -> None:
    asked = server.answers("fine")
    agent.run("which settings do you have?")
    place = re.search(r"own documentation is in (\S+)\.", asked.request["system"][0]["text"])
    assert place is not None
    named = re.findall(r"[a-z-]+\.md", asked.request["system"][0]["text"].split("<docs>")[1].split("</docs>")[0])
    assert "settings.md" in named
    assert [page for page in named if not (Path(place[1]) / page).is_file()] == []
