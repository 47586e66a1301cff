"""A recorded conversation without what changes from run to run: ids, times, places, and the pace of tools.

Ids are numbered in the order in which they first appear, so it still shows which of them are the same. Progress of
tools and shell commands comes as often as the clock lets it, so it is left out.
"""

from __future__ import annotations

import json
import re
from typing import Any

Record = dict[str, Any]
PACED = ("tool_execution_update", "bash_execution_update")
TIMES = ("timestamp", "created", "modified", "durationMs")
# Long, and not what a transcript is about; the prompt also holds the date.
LONG = ("systemPrompt", "dumpTools", "toolsAdded")
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{8}(?:[0-9a-f]{8})?\b")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


class PlainTranscript:
    """Takes records and gives lines that are the same in every run."""

    def __init__(self, places: dict[str, str], version: str) -> None:
        self._places = places
        self._version = version
        self._numbers: dict[str, int] = {}

    def lines(self, records: list[Record]) -> list[str]:
        """One line of JSON per record that is kept."""
        kept = [record for record in records if record["type"] not in PACED]
        return [json.dumps(self._plain(record), ensure_ascii=False) for record in kept]

    def _plain(self, value: Any, key: str = "") -> Any:
        if key in LONG:
            return f"<{key}>"
        if isinstance(value, dict):
            return {name: self._plain(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._plain(item, key) for item in value]
        if key in TIMES:
            return "<time>"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for place, name in self._places.items():
            text = text.replace(place, name)
        text = _ADDRESS.sub("<address>", text).replace(self._version, "<version>")
        return _IDS.sub(self._number, text)

    def _number(self, found: re.Match[str]) -> str:
        number = self._numbers.setdefault(found[0], len(self._numbers) + 1)
        return f"<id {number}>"
