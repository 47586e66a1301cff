"""Long conversations and many of them, in the file formats of the agents that can continue one."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.headless import RunFailed, Site
from bench.model_formats import Record

DATE = "2025-01-01T00:00:00.000Z"


def text_of(number: int) -> str:
    """The text of a message; users and assistants take turns."""
    return f"question number {number} about the code" if number % 2 == 0 else f"answer {number} of a few words"


def samples_of(count: int) -> list[str]:
    """Texts that a request with all of a history contains; none is the beginning of another."""
    return [f"{text_of(count // 2 * 2 - 2)}", text_of(count // 4 * 2), text_of(0)] if count else []


def write_history(site: Site, count: int) -> tuple[str, Callable[[], None]]:
    """A conversation of so many messages; returns how the agent is told to continue it, and what restores the file,
    because each answer makes it longer."""
    kept = site.home.parent / f"history-{count}"
    if site.peer.name == "codex":
        site.answer()
        path = _newest(site.home / ".codex/sessions")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        kept.write_text(_lines(_codex_records(records, count)))
        return str(records[0]["payload"]["id"]), lambda: _copy(kept, path)
    path = site.home.parent / f"session-{count}.jsonl"
    kept.write_text(_lines(_family_records(str(site.work), count)))
    return str(path), lambda: _copy(kept, path)


def fill_folder(site: Site, count: int) -> None:
    """Have so many sessions where this agent keeps those of its working folder: copies of one with an answer."""
    site.answer()
    [path] = sorted((site.home / f".{site.peer.name}/agent/sessions").rglob("*.jsonl"))[:1]
    text, [time, id] = path.read_text(), path.stem.split("_")
    for number in range(count - len(list(path.parent.glob("*.jsonl")))):
        new = str(uuid.UUID(int=(uuid.UUID(id).int & ~0xFFFFFFFF) | number))
        (path.parent / f"{time}_{new}.jsonl").write_text(text.replace(id, new))


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _newest(folder: Path) -> Path:
    found = sorted(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        raise RunFailed(f"no session in {folder}")
    return found[-1]


def _lines(records: Iterator[Record]) -> str:
    return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def _family_records(folder: str, count: int) -> Iterator[Record]:
    yield {"type": "session", "version": 3, "id": str(uuid.uuid4()), "timestamp": DATE, "cwd": folder}
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
    usage: Record = {"input": 100, "output": 20, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 120, "cost": cost}
    model = {"api": "openai-completions", "provider": "bench", "model": "bench", "usage": usage, "stopReason": "stop"}
    for number in range(count):
        role = "user" if number % 2 == 0 else "assistant"
        message: Record = {"role": role, "content": [{"type": "text", "text": text_of(number)}]}
        message |= {"timestamp": 1735689600000 + number, **(model if number % 2 else {})}
        parent = f"{number:08x}" if number else None
        yield {"type": "message", "id": f"{number + 1:08x}", "parentId": parent, "timestamp": DATE, "message": message}


def _codex_records(records: list[Record], count: int) -> Iterator[Record]:
    """A session of one answer, with the history put behind that answer."""
    items = [at for at, record in enumerate(records) if record["type"] == "response_item"]
    answer = max(at for at in items if records[at]["payload"].get("role") == "assistant")
    asked = max(at for at in items if records[at]["payload"].get("role") == "user")

    def messages() -> Iterator[Record]:
        for number in range(count):
            model = records[asked if number % 2 == 0 else answer]
            content = [{**model["payload"]["content"][0], "text": text_of(number)}]
            yield {**model, "payload": {**model["payload"], "id": f"msg_{uuid.uuid4()}", "content": content}}

    everything = [*records[: answer + 1], *messages(), *records[answer + 1 :]]
    for ordinal, record in enumerate(everything):
        yield {**record, "ordinal": ordinal} if "ordinal" in record else record
