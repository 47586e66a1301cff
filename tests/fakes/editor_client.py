"""An editor under test: a tiny client of the Agent Client Protocol over the real program.

It answers what the agent asks by `handlers`, a callable for each method; a method without one is refused, as a client
that did not offer it would. Every line that comes is checked to be one JSON-RPC message. All waiting has a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.agent_folders import AgentFolders
from support.agent_process import start_program

Record = dict[str, Any]
Handler = Callable[[Record], Any]
DEADLINE = 15.0
MARK = "ACP_EDITOR_MARK"


class RpcFailure(Exception):
    """The agent answered with an error."""

    def __init__(self, error: Record) -> None:
        super().__init__(error.get("message"))
        self.code = error["code"]
        self.message = str(error["message"])
        self.data = error.get("data")


class Editor:
    """A connection to `pigeon acp`. As a context manager: leaving closes stdin and expects a clean end."""

    def __init__(
        self,
        folders: AgentFolders,
        *args: str,
        env: dict[str, str] | None = None,
        by_exec: bool = False,
        command: tuple[str, ...] = ("acp",),
    ) -> None:
        self.folders = folders
        self.messages: list[Record] = []
        self.handlers: dict[str, Handler] = {}
        self.version = 1
        self._news = threading.Condition()
        self._lock = threading.Lock()
        self._count = 0
        self._faults: list[str] = []
        self._ended = False
        self._stderr = folders.temp / f"stderr-{uuid.uuid4().hex}"
        with self._stderr.open("wb") as stderr:
            self.process = start_program([*command, *args], stderr.fileno(), folders, env, by_exec=by_exec)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Editor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.close()
            return
        assert self.close() == 0, self.stderr

    # Talking

    def write(self, data: bytes) -> None:
        with self._lock:
            view = memoryview(data)
            while view:
                view = view[self.process.stdin.write(view) :]

    def send(self, message: Any) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def begin(self, method: str, **params: Any) -> int:
        """Send a request, and give its id."""
        with self._lock:
            self._count += 1
            number = self._count
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, id: Any, deadline: float = DEADLINE) -> Any:
        """The result of a request; raises `RpcFailure`."""
        found = self.wait(lambda one: "method" not in one and one.get("id") == id, deadline=deadline)
        if "error" in found:
            raise RpcFailure(found["error"])
        return found["result"]

    def call(self, method: str, **params: Any) -> Any:
        """Send a request and wait for its result."""
        return self.answer(self.begin(method, **params))

    def expect_error(self, method: str, **params: Any) -> RpcFailure:
        """The error of a request that must fail."""
        try:
            result = self.call(method, **params)
        except RpcFailure as failure:
            return failure
        raise AssertionError(f"{method} was not refused: {result}")

    # What editors do

    def initialize(self, version: int = 1, **capabilities: Any) -> Record:
        self.version = version
        about = {"name": "test-editor", "version": "1"}
        if version == 1:
            return self.call(  # type: ignore[no-any-return]
                "initialize", protocolVersion=1, clientInfo=about, clientCapabilities=capabilities
            )
        return self.call("initialize", protocolVersion=version, info=about, capabilities=capabilities)  # type: ignore[no-any-return]

    def new(self, cwd: Path | None = None, **more: Any) -> str:
        """Begin a session; returns its id."""
        params = {"cwd": str(cwd or self.folders.work), "mcpServers": [], **more}
        return str(self.call("session/new", **params)["sessionId"])

    def prompt(self, session: str, text: str) -> Any:
        """Prompt and wait for the answer."""
        return self.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def begin_prompt(self, session: str, text: str) -> int:
        return self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    # Listening

    def mark(self) -> int:
        """The place where the messages end now."""
        with self._news:
            return len(self.messages)

    def wait(self, wanted: Callable[[Record], bool], start: int = 0, deadline: float = DEADLINE) -> Record:
        """The first message from `start` on that is wanted."""
        end, at = time.monotonic() + deadline, start
        with self._news:
            while True:
                while at < len(self.messages):
                    if wanted(self.messages[at]):
                        return self.messages[at]
                    at += 1
                left = end - time.monotonic()
                assert not self._faults, self._faults
                if left <= 0 or self._ended:
                    raise AssertionError(f"never came; got {self.messages[-8:]}; stderr: {self.stderr[-2000:]}")
                self._news.wait(left)

    def updates(self, session: str, kind: str | None = None, start: int = 0) -> list[Record]:
        """The updates of a session so far, of one kind if asked."""
        with self._news:
            found = [one["params"] for one in self.messages[start:] if one.get("method") == "session/update"]
        mine = [params["update"] for params in found if params["sessionId"] == session]
        return [update for update in mine if kind in (None, update["sessionUpdate"])]

    def wait_update(self, session: str, kind: str, start: int = 0, **members: Any) -> Record:
        """The first update of this kind with these members."""

        def is_wanted(one: Record) -> bool:
            update = one.get("params", {}).get("update", {})
            return (
                one.get("method") == "session/update"
                and one["params"]["sessionId"] == session
                and update["sessionUpdate"] == kind
                and all(update.get(name) == value for name, value in members.items())
            )

        return self.wait(is_wanted, start)["params"]["update"]  # type: ignore[no-any-return]

    def text_of_updates(self, session: str, kind: str = "agent_message_chunk", start: int = 0) -> str:
        """The text of all chunks of a kind."""
        return "".join(one["content"].get("text", "") for one in self.updates(session, kind, start))

    def requests_of(self, method: str, start: int = 0) -> list[Record]:
        """What the agent has asked with this method."""
        with self._news:
            return [one for one in self.messages[start:] if one.get("method") == method]

    # The process

    @property
    def stderr(self) -> str:
        return self._stderr.read_text("utf-8", "replace")

    def close_stdin(self) -> None:
        self.process.stdin.close()

    def close(self, deadline: float = DEADLINE) -> int:
        """Say nothing more, and wait for the end; returns the exit code."""
        with contextlib.suppress(OSError, ValueError):
            self.close_stdin()
        code = self.process.wait(deadline)
        self._reader.join(DEADLINE)
        self.process.stdout.close()
        assert not self._faults, self._faults
        return int(code)

    def descriptors(self) -> int:
        """How many the process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self) -> int:
        """Bytes of resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _read(self) -> None:
        rest = b""
        while chunk := self.process.stdout.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._handle_line(line)
        with self._news:
            if rest:
                self._faults.append(f"half a line: {rest[:200]!r}")
            self._ended = True
            self._news.notify_all()

    def _handle_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
        except (ValueError, KeyError, TypeError, AssertionError):
            with self._news:
                self._faults.append(f"no message: {line[:200]!r}")
            return
        with self._news:
            self.messages.append(message)
            self._news.notify_all()
        if "method" in message and "id" in message:
            threading.Thread(target=self._serve, args=(message,), daemon=True).start()

    def _serve(self, message: Record) -> None:
        handler = self.handlers.get(message["method"])
        answer: Record = {"jsonrpc": "2.0", "id": message["id"]}
        if handler is None:
            answer["error"] = {"code": -32601, "message": f"no method {message['method']}"}
        else:
            try:
                answer["result"] = handler(message["params"])
            except RpcFailure as failure:
                answer["error"] = {"code": failure.code, "message": failure.message}
        with contextlib.suppress(OSError, ValueError):
            self.send(answer)


class EditorStarter:
    """Starts editors whose model gives these replies, or follows this script."""

    def __init__(self, folders: AgentFolders) -> None:
        self._folders = folders
        self._started: list[Editor] = []

    def __call__(
        self, *replies: Any, script: Any = None, args: tuple[str, ...] = (), version: int = 1, **client: Any
    ) -> Editor:
        file = self._folders.temp / f"script-{uuid.uuid4().hex}.json"
        file.write_text(json.dumps(script if script is not None else list(replies)))
        editor = Editor(self._folders, "--model", f"scripted/{file}", *args)
        self._started.append(editor)
        editor.initialize(version, **client)
        return editor

    def close(self) -> None:
        """Every one of them must end well."""
        for editor in self._started:
            assert editor.close() == 0, editor.stderr
