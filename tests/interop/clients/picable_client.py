"""A conversation with the client `picable`, which refuses every event and member that pi 0.73.1 does not have.

Usage: python picable_client.py EXECUTABLE CWD [ARGUMENT...]. Prints what the client saw as one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from picable import PiClient, PiClientOptions  # type: ignore[import-not-found]


def wait_end(events: Any, count: int = 1) -> list[str]:
    """The types of the events up to this many ends of runs."""
    seen: list[str] = []
    while seen.count("agent_end") < count:
        seen.append(events.get(timeout=20).type)
    return seen


def use_commands(client: Any, seen: dict[str, Any]) -> None:
    """The commands that start no run."""
    seen["bash"] = client.bash("echo one; exit 3").exit_code
    client.set_model("fake", "fake-2")
    client.cycle_model()
    client.set_thinking_level("low")
    client.cycle_thinking_level()
    client.set_steering_mode("all")
    client.set_follow_up_mode("one-at-a-time")
    client.set_auto_retry(True)
    client.set_auto_compaction(True)
    client.abort_retry()
    client.abort_bash()
    client.set_session_name("a name")
    stats = client.get_session_stats()
    seen["stats"] = [stats.user_messages, stats.tool_calls]
    seen["roles"] = [message.role for message in client.get_messages()]
    seen["summary"] = client.compact().summary
    seen["commands"] = [command.name for command in client.get_commands()]


def main(executable: str, cwd: str, *arguments: str) -> None:
    options = PiClientOptions(
        executable=executable, provider="fake", model="fake-1", cwd=cwd, extra_args=arguments, command_timeout=20
    )
    seen: dict[str, Any] = {}
    with PiClient(options) as client:
        events = client.subscribe_events()
        state = client.get_state()
        seen["model"] = state.model.id
        seen["models"] = [f"{model.provider}/{model.id}" for model in client.get_available_models()]
        client.prompt("use a tool")
        first = wait_end(events)
        seen["first"] = [kind for kind in first if kind != "message_update"]
        client.prompt("try again")
        seen["retried"] = [kind for kind in wait_end(events, 2) if kind.startswith("auto_")]
        seen["text"] = client.get_last_assistant_text()
        client.prompt("talk for ever")
        while events.get(timeout=20).type != "message_update":
            pass
        client.steer("shorter")
        client.follow_up("and then")
        client.abort()
        wait_end(events)
        use_commands(client, seen)
        messages = client.get_fork_messages()
        seen["forkable"] = [message.text for message in messages]
        seen["fork"] = client.fork(messages[0].entry_id).text
        file = client.get_state().session_file
        seen["new"] = client.new_session().cancelled
        if file:
            seen["switched"] = client.switch_session(file).cancelled
        client.prompt("and a last one")
        wait_end(events)
        seen["last"] = client.get_last_assistant_text()
    sys.stdout.write(json.dumps(seen))


main(*sys.argv[1:])
