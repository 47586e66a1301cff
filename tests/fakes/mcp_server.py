"""A tool server as one small program, without the package of the protocol: well-behaved, or wrong in a named way.

    python tool_server.py [MODE]

Modes are in `MODES`; the variable `TOOLS` says how many tools there are, `LOG` names a file in which every message that
comes is kept.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

MODES = (
    "well", "hangs", "silent_lists", "garbage", "only_garbage", "dies", "dies_in_call", "floods_stdout",
    "floods_stderr", "floods_notifications", "huge_result", "endless_pages", "wrong_ids", "never_answers_calls",
    "ends_late", "refuses", "misfit_results",
)  # fmt: skip
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
# One thread writes, in order: a flood must not keep answers from being written at all.
_lines: queue.Queue[bytes] = queue.Queue(16)


def send(record: dict[str, Any]) -> None:
    _lines.put(json.dumps({"jsonrpc": "2.0", **record}).encode() + b"\n")


def write_lines() -> None:
    while True:
        data = memoryview(_lines.get())
        while data:
            data = data[os.write(1, data) :]


class ToolServer:
    """Answers until its input ends."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.more_tools = 0
        self.says_of_echo = "Say the text again"
        self.asked: dict[Any, Any] = {}
        self.answered = threading.Condition()
        self.cancelled: set[Any] = set()

    def run(self) -> None:
        for line in sys.stdin:
            note(line)
            message = json.loads(line)
            if "method" not in message:
                with self.answered:
                    self.asked[message["id"]] = message
                    self.answered.notify_all()
            elif "id" not in message:
                if message["method"] == "notifications/cancelled":
                    with self.answered:
                        self.cancelled.add(message["params"]["requestId"])
                        self.answered.notify_all()
            else:
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
        if self.mode == "ends_late":
            threading.Event().wait()

    def answer(self, message: dict[str, Any]) -> None:
        handler: Callable[[Any, dict[str, Any]], Any] | None = getattr(self, message["method"].replace("/", "_"), None)
        if handler is None:
            error = {"code": -32601, "message": f"no method {message['method']}"}
            send({"id": message["id"], "error": error})
            return
        result = handler(message["id"], message.get("params") or {})
        if result is not None:
            send({"id": message["id"], "result": result})

    def initialize(self, id: Any, params: dict[str, Any]) -> Any:
        if self.mode == "hangs":
            return None
        if self.mode == "refuses":
            send({"id": id, "error": {"code": -32603, "message": "no license was found"}})
            return None
        if self.mode == "dies":
            sys.stderr.write("cannot open the database\n")
            sys.stderr.flush()
            os._exit(3)
        if self.mode in ("garbage", "only_garbage"):
            _lines.put(b'Welcome to the server!\n{"half": \n\xff\xfe\n[1,2]\n42\n')
        if self.mode == "only_garbage":
            return None
        if self.mode == "wrong_ids":
            send({"id": 99999, "result": {"nobody": "asked"}})
            send({"id": "odd", "error": {"code": 1, "message": "nobody asked"}})
        if self.mode.startswith("floods"):
            threading.Thread(target=self.flood, daemon=True).start()
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {}, "completions": {}},
            "serverInfo": {"name": "scripted", "version": "1.0"},
            "instructions": os.environ.get("INSTRUCTIONS", "Be kind."),
        }

    def flood(self) -> None:
        notice = {"method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}}
        while True:
            if self.mode == "floods_stderr":
                sys.stderr.write("noise " * 200 + "\n")
            elif self.mode == "floods_notifications":
                send({"method": "notifications/tools/list_changed"})
                send(notice)
            else:
                _lines.put(b"noise " * 2000 + b"\n")

    def ping(self, id: Any, params: dict[str, Any]) -> Any:
        return {}

    def tools_list(self, id: Any, params: dict[str, Any]) -> Any:
        if self.mode == "silent_lists":
            return None
        if self.mode == "endless_pages":
            page = int(params.get("cursor") or 0)
            return {"tools": [tool(f"page_{page}", "A page")], "nextCursor": str(page + 1)}
        count = int(os.environ.get("TOOLS", "0"))
        listed = [
            tool("echo", self.says_of_echo, reads=True),
            tool("slow", "Answers when it is told to"),
            tool("fail", "Fails"),
            tool("picture", "Shows a picture", reads=True),
            tool("structured", "Answers with values"),
            tool("long", "Answers with a long text"),
            tool("ask", "Asks a person"),
            tool("env", "Shows a variable"),
            tool("grow", "Offers one more tool"),
            tool("die", "Ends the server"),
            tool("roots", "Asks for the roots"),
        ][: 11 if not count else 1]
        listed += [tool(f"thing_{number}", f"Does thing number {number} with the widget") for number in range(count)]
        listed += [tool(f"new_{number}", "A new tool") for number in range(self.more_tools)]
        return {"tools": listed}

    def prompts_list(self, id: Any, params: dict[str, Any]) -> Any:
        arguments = [{"name": "topic", "required": True}, {"name": "tone"}]
        return {"prompts": [{"name": "poem", "description": "Write a poem", "arguments": arguments}]}

    def prompts_get(self, id: Any, params: dict[str, Any]) -> Any:
        given = params.get("arguments") or {}
        text = f"Write a poem about {given.get('topic')} ({given.get('tone', 'plain')})"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    def completion_complete(self, id: Any, params: dict[str, Any]) -> Any:
        if self.mode == "never_answers_calls":
            return None
        argument = params["argument"]
        offered = {"topic": ["pigeons", "the sea"], "tone": ["merry", "sad"], "name": ["one", "two"]}[argument["name"]]
        context = (params.get("context") or {}).get("arguments", {})
        known = [f"{one}-about-{context['topic']}" if "topic" in context else one for one in offered]
        return {"completion": {"values": [one for one in known if one.startswith(argument["value"])]}}

    def resources_list(self, id: Any, params: dict[str, Any]) -> Any:
        return {"resources": [{"uri": "note://one", "name": "One", "mimeType": "text/plain"}]}

    def resources_templates_list(self, id: Any, params: dict[str, Any]) -> Any:
        return {"resourceTemplates": [{"uriTemplate": "note://{name}", "name": "Any note"}]}

    def resources_read(self, id: Any, params: dict[str, Any]) -> Any:
        if params["uri"] == "note://none":
            send({"id": id, "error": {"code": -32002, "message": "there is no such note"}})
            return None
        long = " with many words" * 20_000 if params["uri"] == "note://long" else ""
        return {"contents": [{"uri": params["uri"], "text": f"the text of {params['uri']}{long}"}]}

    def tools_call(self, id: Any, params: dict[str, Any]) -> Any:
        if self.mode == "never_answers_calls":
            return None
        if self.mode == "dies_in_call":
            os._exit(7)
        if self.mode == "misfit_results":
            return {"content": 7}
        arguments = params.get("arguments") or {}
        name = params["name"]
        if name == "echo" and self.mode == "huge_result":
            _lines.put(b'{"jsonrpc":"2.0","id":%s,"result":' % json.dumps(id).encode())
            _lines.put(b'{"content":[{"type":"text","text":"')
            for _ in range(1024):
                _lines.put(b"x" * 1024 * 1024)
            _lines.put(b'"}]}}\n')
            return None
        return getattr(self, f"call_{name}", self.call_thing)(id, params, arguments)

    def call_echo(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return text(str(arguments.get("text", "")))

    def call_thing(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return text(f"did {params['name']}")

    def call_fail(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return {**text("it went wrong"), "isError": True}

    def call_picture(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}

    def call_structured(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return {"content": [], "structuredContent": {"answer": 42}}

    def call_long(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return text("\n".join(f"line {number}" for number in range(20_000)))

    def call_env(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return text(json.dumps({name: os.environ.get(name) for name in str(arguments.get("text")).split(",")}))

    def call_die(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        os._exit(9)

    def call_grow(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        self.more_tools += 1
        self.says_of_echo = str(arguments.get("text", self.says_of_echo))
        send({"method": "notifications/tools/list_changed"})
        return text("grown")

    def call_slow(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        token = (params.get("_meta") or {}).get("progressToken")
        send(
            {
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 1, "total": 3, "message": "begun"},
            }
        )
        with self.answered:
            self.answered.wait_for(lambda: id in self.cancelled, float(arguments.get("text") or 20))
        return text("slept")

    def call_ask(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        schema = {
            "type": "object",
            "properties": {"name": {"type": "string", "title": "Your name"}, "sure": {"type": "boolean"}},
            "required": ["name", "sure"],
        }
        reply = self.request("elicitation/create", {"message": "Who are you?", "requestedSchema": schema})
        return text(json.dumps(reply.get("result", reply.get("error"))))

    def call_roots(self, id: Any, params: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return text(json.dumps([self.request(method, {}) for method in ("roots/list", "sampling/createMessage")]))

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = f"from-server-{method}"
        send({"id": id, "method": method, "params": params})
        with self.answered:
            self.answered.wait_for(lambda: id in self.asked, 30)
        return self.asked[id]  # type: ignore[no-any-return]


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def tool(name: str, about: str, reads: bool = False) -> dict[str, Any]:
    return {"name": name, "description": about, "inputSchema": SCHEMA, "annotations": {"readOnlyHint": reads}}


def note(line: str) -> None:
    if "LOG" in os.environ:
        with open(os.environ["LOG"], "a", encoding="utf-8") as log:
            log.write(line)


if __name__ == "__main__":
    threading.Thread(target=write_lines, daemon=True).start()
    ToolServer(sys.argv[1] if len(sys.argv) > 1 else "well").run()
