"""Calls every method of a Python SDK for pi; prints which were never called, and what failed."""

import importlib
import inspect
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

sdk, program, cwd = sys.argv[1:]
called: set[str] = set()
failed: dict[str, str] = {}
arguments = ["--no-themes"]
module = importlib.import_module(sdk)
listening, kind = ("on_event", module.PiClient) if sdk == "pi_agent" else ("subscribe", module.PiAgent)


def made() -> Any:
    """A client that was not started yet."""
    chosen = {"cwd": cwd, "provider": "fake", "model": "fake-1", "extra_args": arguments}
    if sdk == "pi_agent":
        return kind(executable=program, **chosen)
    return module.PiAgentSync(config=module.PiConfig(bin=program, **chosen))


client = made()
methods = {name for name, member in inspect.getmembers(kind, callable) if not name.startswith("_")}


def call(method: str, *args: Any, **more: Any) -> Any:
    """One call: absent methods are passed over, a failure is kept under the name of its method."""
    if method not in methods:
        return None
    called.add(method)
    try:
        return getattr(client, method)(*args, **more)
    except Exception as error:
        failed[method] = repr(error)
        return None


def beside(method: str, *args: Any, **more: Any) -> Callable[[], Any]:
    """A call in a thread of its own; the result waits for it."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call(method, *args, **more)))
    thread.start()

    def result() -> Any:
        thread.join(30)
        return answers[0] if answers else None

    return result


def stopped_run(message: str) -> None:
    """While a run lasts: queue, look, stop."""
    begun = threading.Event()

    def on_event(event: Any) -> None:
        if getattr(event, "text_delta", None) is not None or "text_delta" in repr(event):
            begun.set()

    stop = call(listening, on_event)
    idle = beside("wait_for_idle", timeout=20)
    call("prompt", message)
    begun.wait(20)
    call("steer", "sooner")
    call("follow_up", "later")
    call("clear_queue")
    call("abort")
    idle()
    stop()


def reading() -> None:
    """What there is to be read, and what to be set."""
    for name in (
        "get_state", "get_available_models", "get_available_thinking_levels", "get_commands", "get_session_stats",
        "get_last_assistant_text", "get_messages", "get_entries", "get_tree", "cycle_model", "cycle_thinking_level",
        "abort_retry", "abort_bash",
    ):  # fmt: skip
        call(name)
    call("set_model", "fake", "fake-2")
    call("set_thinking_level", "low")
    call("set_steering_mode", "all")
    call("set_follow_up_mode", "all")
    call("set_auto_compaction", False)
    call("set_auto_retry", False)
    call("set_session_name", "every method")
    call("export_html", output_path=f"{cwd}/page.html")


def special() -> None:
    """The ways to run a prompt that only one of them has."""
    if sdk == "pi_agent":
        call("request", "get_state")
        call("observe", rpc=True)
        with call("events") as events:
            collecting = beside("collect_events", timeout=20)
            call("prompt_and_wait", "hear it", timeout=20)
            next(iter(events))
        collecting()
        with made() as owner:  # a client that sends prompts by itself may not own runs any more
            called.update(("run", "stream"))
            assert owner.run("run it").stop_reason == "stop"
            with owner.stream("stream it") as stream:
                list(stream)
    else:
        call("on_ui_request", lambda request: None)()
        call("observe_ui_requests", lambda request: None)()
        list(call("prompt_stream", "stream it", timeout=20))


def main() -> dict[str, Any]:
    call("start")
    run = call("prompt_and_wait", "one", timeout=20)
    stopped_run("two")
    call("new_session")
    call("prompt_and_wait", "three " * 400, timeout=20)
    call("prompt_and_wait", "and on " * 40, timeout=20)
    reading()
    output = call("bash", "echo from bash")
    compacted = call("compact", custom_instructions="briefly")
    file = client.get_state()["sessionFile"]
    rows = call("get_fork_messages")
    call("clone")
    call("fork", rows[-1]["entryId"])
    call("switch_session", file)
    special()
    call("close")
    call("stop")
    return {
        "failed": failed,
        "uncalled": sorted(methods - called),
        "run": len(run or ()) > 5,
        "bash": output and output["output"].strip(),
        "compacted": bool(compacted and compacted["summary"]),
    }


sys.stdout.write(json.dumps(main()))
