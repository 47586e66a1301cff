"""Sessions for tests: a repository, entries in few words, files with all that a page or a trajectory can show."""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pigeon.export.html import SessionPage
from pigeon.export.markdown import TextFormatter
from pigeon.session.history.journal import Journal
from pigeon.session.history.repository import SessionRepository
from pigeon.session.history.session_file import Namesake, Opener, SessionFile
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.append_file import AppendFile
from pigeon.system.environment import Environment
from pigeon.wire.answers import SessionStats, TokenTotals
from pigeon.wire.base import ABSENT, Absent
from pigeon.wire.content import AssistantBlock, ImageContent, TextContent
from pigeon.wire.entries import Entry, MessageEntry
from pigeon.wire.messages import AssistantMessage, Message, StopReason, ToolResultMessage, UserMessage
from pigeon.wire.model import Cost, Usage

RECORDED = Path(__file__).parents[1] / "session" / "recorded"
OLD = Path(__file__).parents[1] / "session" / "old_versions"
NOW = 1_793_527_200_000
BEGAN = "2026-11-01T10:00:00.000Z"
AT = 1_793_527_200_000
HEADER = {"type": "session", "version": 3, "id": "0193-aa", "timestamp": BEGAN, "cwd": "/home/ada/project"}
FIRST_PROMPT = "The parser drops **negative numbers**. Please find out why and fix `src/parser.py`."
OTHER_PROMPT = "Rather rewrite it with a regular expression"
SECRET = "sk-ant-api03-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"
CODE = '''"""Numbers in texts."""
import re


class Parser:
    LIMIT = 10_000

    def parse(self, text: str) -> list[int]:
        found = []
        for word in text.split():
            if word.isdigit():  # drops "-5"
                found.append(int(word))
        return found
'''
PATCH = """--- src/parser.py
+++ src/parser.py
@@ -8,6 +8,7 @@
     def parse(self, text: str) -> list[int]:
         found = []
         for word in text.split():
-            if word.isdigit():  # drops "-5"
-                found.append(int(word))
+            digits = word.removeprefix("-")
+            if digits.isdigit():  # keeps "-5"
+                found.append(int(word))
         return found
"""
ANSWER = """The parser asks `str.isdigit`, which is false for a sign. Two ways out:

1. strip the sign before asking
2. use a regular expression

| way | speed | reads well |
|---|---|---|
| strip | fast | yes |
| expression | slower | so-so |

```python
def is_number(word: str) -> bool:
    return word.removeprefix("-").isdigit()
```

> See the [documentation](https://docs.example/str) for details.
"""
OUTPUT = "\x1b[1m========= test session starts =========\x1b[0m\nt/test_parser.py \x1b[32m....\x1b[0m\x1b[31mF\x1b[0m\n"
COST = {"input": 0.001, "output": 0.002, "cacheRead": 0, "cacheWrite": 0, "total": 0.003}
USAGE = {"input": 10, "output": 5, "cacheRead": 20, "cacheWrite": 3, "totalTokens": 38, "cost": COST}


class DiskRepository(SessionRepository):
    """A repository in a folder of the test."""

    def __init__(self, folder: Path, persistent: bool = True, opener: Opener = AppendFile) -> None:
        self.reports: list[str] = []
        self.opener = opener
        store = SessionFolders(str(folder.parent))
        super().__init__(str(folder), store, persistent, lambda: NOW, self.reports.append, os.path.abspath)

    def _session_file(self, path: str, namesake: Namesake | None = None) -> SessionFile:
        return SessionFile(path, self.reports.append, self.opener, namesake)


def user(text: str) -> UserMessage:
    return UserMessage(content=[TextContent(text=text)], timestamp=NOW)


def recorded_session_names() -> list[Any]:
    """The names of the recorded sessions."""
    return sorted(path.name for path in RECORDED.glob("*.jsonl"))


def raw_entries(journal: Journal) -> list[bytes]:
    """The entries as they are kept."""
    return [line.raw for line in journal.lines]


def entry(message: Message) -> MessageEntry:
    return MessageEntry(id="0000aaaa", parent_id=None, timestamp=BEGAN, message=message)


def user_entry(text: str, *pictures: ImageContent) -> MessageEntry:
    return entry(UserMessage(content=[TextContent(text=text), *pictures], timestamp=AT))


def assistant_entry(
    *blocks: AssistantBlock | str, stop: StopReason = "stop", error: str | Absent = ABSENT, model: str = "fake-1"
) -> MessageEntry:
    content = [TextContent(text=block) if isinstance(block, str) else block for block in blocks]
    usage = Usage(input=10, output=1_220, cost=Cost(total=0.01))
    return entry(
        AssistantMessage(
            content=list(content), api="fake", provider="lab", model=model, usage=usage, stop_reason=stop,
            error_message=error, timestamp=AT,
        )
    )  # fmt: skip


def tool_result_entry(call_id: str, text: str, failed: bool = False, details: Any = ABSENT) -> MessageEntry:
    return entry(
        ToolResultMessage(
            tool_call_id=call_id, tool_name="bash", content=[TextContent(text=text)], is_error=failed, timestamp=AT,
            details=details,
        )
    )  # fmt: skip


def stats() -> SessionStats:
    """Figures that are easy to find again."""
    tokens = TokenTotals(input=12_000, output=3_400, cache_read=50_001, cache_write=102, total=65_503)
    return SessionStats(
        session_id="0193-aa", user_messages=2, assistant_messages=3, tool_calls=7, tool_results=7, total_messages=19,
        tokens=tokens, cost=0.1234,
    )  # fmt: skip


class ItemLine:
    """An entry as the page gets it; its id is its number."""

    def __init__(self, item: Any, number: int, parent: int | None) -> None:
        self._item = item
        self.type = str(item.get("type", "")) if isinstance(item, dict) else str(item.__struct_config__.tag)
        self.id = f"id{number}"
        self.parent_id = None if parent is None else f"id{parent}"
        message = getattr(item, "message", None)
        self.role = "" if message is None else str(message.__struct_config__.tag)

    def parse_uncached(self) -> Entry | None:
        return None if isinstance(self._item, dict) else self._item  # type: ignore[no-any-return]

    def to_plain(self) -> Any:
        return self._item


def render_page(header: Mapping[str, Any], items: Sequence[Any], stats: SessionStats, name: str | None = None) -> str:
    """The page of a session with one branch."""
    lines = [ItemLine(item, number, number - 1 if number else None) for number, item in enumerate(items)]
    return "".join(SessionPage(header, lines, [line.id for line in lines], stats, name).render_pieces(TextFormatter()))


def picture(width: int = 240, height: int = 120) -> str:
    """A small PNG as base64."""
    rows = b"".join(b"\0" + bytes(c for x in range(width) for c in (x, 2 * y % 256, 160)) for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


class SessionLines:
    """Adds one entry behind the other; `at` is the entry that the next one hangs on."""

    def __init__(self) -> None:
        header = {"type": "session", "version": 3, "id": "0193aa11-2233", "timestamp": BEGAN, "cwd": "/home/ada/parser"}
        self.rows: list[dict[str, Any]] = [header]
        self.at: str | None = None
        self._moment = AT

    def entry(self, kind: str, **members: Any) -> str:
        """Any entry; its id."""
        id = f"{len(self.rows):08x}"
        self.rows.append({"type": kind, "id": id, "parentId": self.at, "timestamp": BEGAN, **members})
        self.at = id
        return id

    def message(self, role: str, **members: Any) -> str:
        """A message; its id."""
        self._moment += 7_000
        return self.entry("message", message={"role": role, "timestamp": self._moment, **members})

    def user(self, *blocks: str | dict[str, Any]) -> str:
        return self.message("user", content=[_text(block) for block in blocks])

    def answer(self, *blocks: str | dict[str, Any], stop: str = "stop", scale: int = 1, **members: Any) -> str:
        cost = {"input": 0.004 * scale, "output": 0.003, "cacheRead": 0.001, "cacheWrite": 0, "total": 0.008 * scale}
        usage = {
            "input": 1_200 * scale, "output": 350, "cacheRead": 8_000 * scale, "cacheWrite": 400, "totalTokens": 9_950,
            "cost": cost,
        }  # fmt: skip
        return self.message(
            "assistant", content=[_text(block) for block in blocks], api="fake", provider="lab", model="fake-sonnet-5",
            usage=usage, stopReason=stop, **members,
        )  # fmt: skip

    def tool(self, name: str, arguments: dict[str, Any], text: str, *more: Any, **members: Any) -> None:
        call = f"call-{len(self.rows)}"
        self.answer({"type": "toolCall", "id": call, "name": name, "arguments": arguments}, stop="toolUse", scale=2)
        content = [{"type": "text", "text": text}, *more]
        given = {"isError": False, "durationMs": 1_240, **members}
        self.message("toolResult", toolCallId=call, toolName=name, content=content, **given)

    def text(self) -> str:
        return "".join(json.dumps(row) + "\n" for row in self.rows)


def _text(block: str | dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def rich_session() -> str:
    """The lines of the file: a fix with every tool, two branches besides the active one, labels, a name, a secret."""
    lines = SessionLines()
    lines.entry("session_info", name="Negative numbers in the parser")
    lines.user(FIRST_PROMPT)
    thinking = {"type": "thinking", "thinking": "I should look at `parse` first.\nThen at the tests."}
    lines.answer(thinking, "I will read the parser first.", stop="stop")
    lines.tool("read", {"path": "src/parser.py"}, CODE)
    lines.tool("grep", {"pattern": "isdigit", "path": "src", "glob": "*.py"}, "src/parser.py:11: if word.isdigit():")
    fork = lines.at
    edits = [{"oldText": "if word.isdigit():", "newText": "digits = …"}]
    details = {"patch": PATCH, "firstChangedLine": 11}
    done = "Successfully replaced 1 block(s) in src/parser.py."
    lines.tool("edit", {"path": "src/parser.py", "edits": edits}, done, details=details)
    lines.tool("bash", {"command": "pytest -q tests/test_parser.py", "timeout": 60}, OUTPUT + f"token {SECRET}\n")
    lines.tool("bash", {"command": "cd src &&\n  ./missing --flag"}, "bash: ./missing: not found", isError=True)
    plan = "1 of 3 tasks are finished.\n\nFix (phase-1)\n[x] task-1: Read\n[>] task-2: Repair\n[ ] task-3: Test"
    lines.tool("todo", {"ops": [{"op": "update", "id": "task-1", "status": "completed"}]}, plan)
    test = "from parser import Parser\n\n\ndef test_sign() -> None:\n    assert Parser().parse('-5') == [-5]\n"
    lines.tool("write", {"path": "tests/test_sign.py", "content": test}, "Successfully wrote to tests/test_sign.py")
    image = {"type": "image", "data": picture(), "mimeType": "image/png"}
    lines.tool("read", {"path": "docs/diagram.png"}, "Read image file [image/png]", image)
    lines.tool("deploy", {"target": "staging", "options": {"dry": True, "tags": ["a", "b"]}}, '{"ok": true, "id": 7}')
    answer = lines.answer(ANSWER)
    lines.entry("label", targetId=answer, label="the fix")
    lines.entry("model_change", provider="lab", modelId="fake-opus-5")
    lines.user("Thanks! Does it keep\n- `-0`?\n- `--5`?\n\n<b>not bold</b>", image)
    last = lines.answer("`-0` is kept, `--5` is not.")
    lines.entry("compaction", summary="We **fixed** the parser.", firstKeptEntryId=last, tokensBefore=48_123)
    lines.message("bashExecution", command="git status", output="clean", exitCode=0, cancelled=False, truncated=False)
    lines.user("Good. Write the changelog.")
    lines.answer("Done: one line under *Fixed*.")
    active = lines.at
    lines.at = fork
    lines.user(OTHER_PROMPT)
    lines.answer("With `re.findall(r'-?\\d+', text)` it is one line.")
    lines.at = fork
    lines.user("Never mind the parser; explain the tests")
    lines.answer("There are four.")
    lines.at = active
    lines.entry("label", targetId=active, label="released")
    return lines.text()


def environment_in(folder: Path) -> Environment:
    """Nothing of the user's."""
    return Environment(variables={"PATH": os.environ["PATH"]}, home=str(folder), cwd=str(folder))


def session_text(*entries: dict[str, Any]) -> str:
    """A session file; each entry hangs on the one before it unless it says otherwise."""
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s1", "timestamp": BEGAN, "cwd": "/w"}]
    before: str | None = None
    for number, entry in enumerate(entries, 1):
        lines.append({"id": f"e{number}", "parentId": before, "timestamp": BEGAN, **entry})
        before = lines[-1]["id"]
    return "".join(json.dumps(line) + "\n" for line in lines)


def user_line(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": "user", "content": text, "timestamp": 1}, **more}


def assistant_line(*content: dict[str, Any] | str, stop: str = "stop", **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
    message = {"role": "assistant", "content": blocks, "api": "a", "provider": "p", "model": "m", "usage": USAGE}
    return {"type": "message", "message": {**message, "stopReason": stop, "timestamp": 1, **more}}


def call_block(id: str, name: str = "bash") -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": name, "arguments": {"command": "ls"}}


def result_line(id: str, text: str = "ok") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    message = {"role": "toolResult", "toolCallId": id, "toolName": "bash", "content": content, "isError": False}
    return {"type": "message", "message": {**message, "timestamp": 1}}


def compaction_line(first_kept: str) -> dict[str, Any]:
    return {
        "type": "compaction",
        "summary": "So far.",
        "firstKeptEntryId": first_kept,
        "tokensBefore": 100,
        "usage": USAGE,
    }


def tokens_line(message: str, **data: Any) -> dict[str, Any]:
    return {"type": "custom", "customType": "pigeon.tokens", "data": {"messageId": message, **data}}


SESSIONS = {
    "twice compacted": session_text(
        user_line("one"),
        assistant_line(call_block("c1")),
        result_line("c1"),
        assistant_line("done one"),
        compaction_line("e4"),
        user_line("two"),
        assistant_line("done two"),
        compaction_line("e4"),
        user_line("three"),
        assistant_line("done three"),
    ),
    "branches": session_text(
        user_line("one"),
        assistant_line("first"),
        user_line("left"),
        assistant_line("left"),
        user_line("right", parentId="e2"),
        assistant_line("right"),
    ),
    "retried": session_text(
        user_line("one"),
        assistant_line(stop="error", errorMessage="Overloaded"),
        {"type": "context_edit", "targetId": "e2", "replacement": None},
        assistant_line("well"),
    ),
    "a result without its call": session_text(user_line("one"), result_line("gone"), assistant_line("well")),
    "token ids": session_text(
        user_line("one"),
        assistant_line("two"),
        tokens_line("e2", promptTokenIds=[1, 2], tokenIds=[3, 4], logprobs=[-0.1, -0.2]),
    ),
    "thinking and declared tools": session_text(
        {
            "type": "message",
            "message": {
                "role": "system",
                "content": "",
                "timestamp": 1,
                "toolsAdded": [{"name": "bash", "description": "runs", "parameters": {"type": "object"}}],
            },
        },
        user_line("one"),
        assistant_line(
            {"type": "thinking", "thinking": "hm"}, "well", thinkingLevel="high", durationMs=7, responseId="r"
        ),
    ),
}
