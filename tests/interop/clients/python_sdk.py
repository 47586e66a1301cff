"""A whole conversation through `pi-agent-python-sdk`; what it saw is printed as one JSON object."""

import json
import sys
import threading
from typing import Any

from pi_agent import PiClient, PiRunError  # type: ignore[import-not-found]

program, cwd, extension = sys.argv[1:]
PARAMETERS = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
notices: list[str] = []
noticed = threading.Event()


def on_ui(request: dict[str, Any]) -> Any:
    """Say yes, and remember what was said."""
    if request["method"] == "confirm":
        return True
    notices.append(str(request.get("message")))
    noticed.set()
    return None


def client() -> PiClient:
    """The program, as the SDK starts it."""
    return PiClient(
        executable=program,
        cwd=cwd,
        provider="fake",
        model="fake-1",
        extra_args=["--extension", extension, "--no-themes"],
        ui_handler=on_ui,
    )


def main() -> dict[str, Any]:
    """Two clients: one that owns its runs, one that works at the level of the protocol."""
    seen: dict[str, Any] = {}
    with client() as pi:
        seen["version"], seen["compatibility"] = pi.pi_version, str(pi.compatibility)
        seen["state"] = pi.get_state()
        first = pi.run("use a tool")
        seen["first"] = [first.text, first.stop_reason]
        pieces = []
        try:
            with pi.stream("talk for ever") as stream:
                for event in stream:
                    if event.text_delta is not None:
                        pieces.append(event.text_delta)
                        pi.abort()
                stream.result()
        except PiRunError as error:
            seen["aborted"] = str(error)
        seen["pieces"] = "".join(pieces)
        seen["model"] = pi.set_model("fake", "fake-2")["id"]
        seen["second"] = pi.run("again").text
        seen["levels"] = pi.get_available_thinking_levels()
        seen["models"] = [model["id"] for model in pi.get_available_models()]
        seen["commands"] = [command["name"] for command in pi.get_commands()]
        seen["stats"] = pi.get_session_stats()["userMessages"]
        seen["bash"] = pi.bash("echo from bash")["output"].strip()
        seen["tree"] = bool(pi.get_tree()["tree"])
        seen["entries"] = len(pi.get_entries()["entries"]) > 5
        seen["forkable"] = [row["text"] for row in pi.get_fork_messages()]
        seen["stderr"] = pi.stderr_tail
    with client() as pi:
        pi.prompt("/ask confirm")
        noticed.wait(20)
        seen["dialog"] = notices[-1]
        tools = [{"name": "echo_host", "description": "Echo from the host", "parameters": PARAMETERS}]
        seen["host_tools"] = pi.request("set_host_tools", tools=tools)["data"]["toolNames"]
        seen["new"] = pi.new_session()["cancelled"]
        seen["empty"] = pi.get_messages()
    return seen


sys.stdout.write(json.dumps(main()))
