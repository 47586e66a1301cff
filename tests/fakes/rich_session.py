"""A session with everything that a page can show, as the lines of its file: for tests that look at pages."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

BEGAN = "2026-11-01T10:00:00.000Z"
AT = 1_793_527_200_000
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
        """A prompt."""
        return self.message("user", content=[_text(block) for block in blocks])

    def answer(self, *blocks: str | dict[str, Any], stop: str = "stop", scale: int = 1, **members: Any) -> str:
        """An answer of the model."""
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
        """A call and its result."""
        call = f"call-{len(self.rows)}"
        self.answer({"type": "toolCall", "id": call, "name": name, "arguments": arguments}, stop="toolUse", scale=2)
        content = [{"type": "text", "text": text}, *more]
        given = {"isError": False, "durationMs": 1_240, **members}
        self.message("toolResult", toolCallId=call, toolName=name, content=content, **given)

    def text(self) -> str:
        """The file."""
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
