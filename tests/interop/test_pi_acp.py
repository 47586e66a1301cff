"""pi-acp, the adapter that editors use: an editor's side of the Agent Client Protocol, its side unmodified, then we.

Runs with `PIGEON_INTEROP=1 pytest tests/interop`; see `support/installed_programs.py` for where the package goes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes.model_server import Call, Hang, ModelServer, said_in
from support.agent_folders import AgentFolders, providers
from support.agent_process import folder_with
from support.installed_programs import node, npm_package, only_on_request

pytestmark = only_on_request
VERSION = "0.0.34"
GATE = Path(__file__).parents[2] / "examples" / "extensions" / "permission_gate.py"
Record = dict[str, Any]


class Editor:
    """Speaks JSON-RPC with the adapter; says yes to every permission."""

    def __init__(self, package: Path, folders: AgentFolders) -> None:
        path = f"{folder_with(folders, 'pi')}:{os.environ['PATH']}"
        self._process = subprocess.Popen(
            [node(), str(package / "dist" / "index.js")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=folders.environment({"PATH": path}),
            cwd=folders.work,
            text=True,
        )
        self.records: list[Record] = []
        self._news = threading.Condition()
        self._count = 0
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._drain)]
        for reader in self._readers:
            reader.start()

    def call(self, method: str, **params: Any) -> Record:
        """Ask, and wait for the result."""
        number = self.begin(method, **params)
        answer = self.wait(lambda record: record.get("id") == number and "method" not in record)
        assert "result" in answer, answer
        result: Record = answer["result"]
        return result

    def begin(self, method: str, **params: Any) -> int:
        """Ask without waiting."""
        self._count += 1
        self._send({"id": self._count, "method": method, "params": params})
        return self._count

    def notify(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def wait(self, wanted: Callable[[Record], bool]) -> Record:
        with self._news:
            assert self._news.wait_for(lambda: any(map(wanted, self.records)), 30), self.records[-5:]
            return next(filter(wanted, self.records))

    def updates(self, kind: str) -> list[Record]:
        """What the session showed, of one kind."""
        found = [record["params"]["update"] for record in self.records if record.get("method") == "session/update"]
        return [update for update in found if update["sessionUpdate"] == kind]

    def text(self) -> str:
        return "".join(update["content"]["text"] for update in self.updates("agent_message_chunk"))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait(20)
        for reader in self._readers:
            reader.join(20)

    def _send(self, record: Record) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **record}) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                record = json.loads(line)
                if record.get("method") == "session/request_permission":
                    option = record["params"]["options"][0]["optionId"]
                    outcome = {"outcome": {"outcome": "selected", "optionId": option}}
                    self._send({"id": record["id"], "result": outcome})
                with self._news:
                    self.records.append(record)
                    self._news.notify_all()

    def _drain(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self.stderr = lines.read()


def words(text: str) -> list[Record]:
    return [{"type": "text", "text": text}]


def test_an_editor_holds_a_whole_conversation_through_the_adapter(tmp_path: Path) -> None:
    package = npm_package("pi-acp", VERSION)
    folders = AgentFolders(tmp_path)
    (folders.agent / "extensions").mkdir()
    shutil.copy(GATE, folders.agent / "extensions")
    (folders.work / "a.txt").write_text("one\ntwo\n")
    with ModelServer() as server:
        folders.configure(providers(server.url), {"defaultProvider": "fake", "defaultModel": "fake-1"})
        editor = Editor(package, folders)
        try:
            converse(editor, folders, server)
        finally:
            editor.close()


def converse(editor: Editor, folders: AgentFolders, server: ModelServer) -> None:
    """Start, state, a tool with a question, a diff, an abort, another model, and the session again."""
    editor.call("initialize", protocolVersion=1, clientCapabilities={})
    opened = editor.call("session/new", cwd=str(folders.work), mcpServers=[])
    session = opened["sessionId"]
    assert opened["models"]["currentModelId"] == "fake/fake-1"
    editor.wait(lambda record: "available_commands_update" in str(record))

    server.answers("Let me. ", Call("bash", {"command": "rm -rf gone; echo swept"}, id="b"))
    change = {"path": "a.txt", "edits": [{"oldText": "two", "newText": "three"}]}
    server.answers(Call("edit", change, id="e"))
    server.answers("Swept and edited.")
    ended = editor.call("session/prompt", sessionId=session, prompt=words("sweep"))
    assert ended["stopReason"] == "end_turn"
    assert "Swept and edited." in editor.text()
    editor.wait(lambda record: record.get("method") == "session/request_permission")
    shown = json.dumps(editor.updates("tool_call_update"))
    assert "swept" in shown
    assert '"oldText": "one\\ntwo\\n"' in shown
    assert '"newText": "one\\nthree\\n"' in shown

    server.answers("On and on", Hang())
    number = editor.begin("session/prompt", sessionId=session, prompt=words("talk for ever"))
    editor.wait(lambda record: "On" in str(record))
    editor.notify("session/cancel", sessionId=session)
    stopped = editor.wait(lambda record: record.get("id") == number and "result" in record)
    assert stopped["result"]["stopReason"] == "cancelled"

    editor.call("session/set_config_option", sessionId=session, configId="model", value="fake/fake-2")
    asked = server.answers("From the second.")
    editor.call("session/prompt", sessionId=session, prompt=words("again"))
    assert asked.request["model"] == "fake-2"
    assert said_in(asked.request)[-1] == ("user", "again")
    listed = editor.call("session/list", cwd=str(folders.work))
    assert session in json.dumps(listed)
