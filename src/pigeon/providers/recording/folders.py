"""Folders of a recording and of its replay: the one is replaced by the other in texts.

A recording names the folders of its run wherever the agent or the model did. In another place, or on another machine,
their paths differ.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from pigeon.agent.inference import BlockClosed, BlockGrew, Delta, Finished, ModelRequest
from pigeon.agent.interfaces import ModelProvider

# A shorter name may occur in any text by chance and is not replaced.
SHORTEST = 4


class FolderNames:
    """Replaces names of folders; with equal names it changes nothing."""

    def __init__(self, recorded: Mapping[str, str], here: Mapping[str, str]) -> None:
        pairs = {path: here[name] for name, path in recorded.items() if name in here and len(path) >= SHORTEST}
        self._names = {path: other for path, other in pairs.items() if path != other}
        longest_first = sorted(self._names, key=len, reverse=True)
        # Not at the beginning of a longer name.
        found = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?:{found})(?![\w-])") if found else None

    @property
    def has_differences(self) -> bool:
        return self._pattern is not None

    def replace_folders(self, text: str) -> str:
        """The text of the recording with the folders of this machine."""
        return text if self._pattern is None else self._pattern.sub(lambda found: self._names[found[0]], text)

    def find_partial_name(self, text: str) -> int:
        """The position at which a folder name may begin that continues beyond the text; its length if there is none."""
        for size in range(min(len(text), max(map(len, self._names), default=0)), 0, -1):
            tail = text[-size:]
            if any(name.startswith(tail) for name in self._names):
                return len(text) - size
        return len(text)


class MovedProvider:
    """A provider whose answers name the folders of this machine; a name may be spread over several deltas."""

    def __init__(self, provider: ModelProvider, names: FolderNames) -> None:
        self._provider = provider
        self._names = names

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        return self._replace_in_deltas(self._provider.stream(request))

    async def _replace_in_deltas(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta, None]:
        held: dict[int, str] = {}
        try:
            async for delta in deltas:
                if isinstance(delta, BlockGrew):
                    text = held.pop(delta.index, "") + delta.text
                    end = self._names.find_partial_name(text)
                    if text[end:]:
                        held[delta.index] = text[end:]
                    if text[:end]:
                        yield BlockGrew(delta.index, self._names.replace_folders(text[:end]))
                    continue
                for index in [delta.index] if isinstance(delta, BlockClosed) else list(held):
                    rest = held.pop(index, "") if isinstance(delta, BlockClosed | Finished) else ""
                    if rest:
                        yield BlockGrew(index, self._names.replace_folders(rest))
                yield delta
        finally:
            close = getattr(deltas, "aclose", None)
            if close is not None:
                await close()
