"""The folders and files that an agent under test finds: a fresh home, pi's models.json and settings.json."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]
KEPT = ("PATH", "LANG", "SYSTEMROOT", "NODE_PATH", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START")


def model(model_id: str, **more: Any) -> Record:
    """One entry of models.json."""
    base: Record = {"id": model_id, "name": model_id, "reasoning": True, "input": ["text", "image"]}
    cost = {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1.25}
    return {**base, "contextWindow": 200_000, "maxTokens": 8_192, "cost": cost, **more}


def providers(url: str, models: Iterable[Record] | None = None) -> Record:
    """models.json for one provider that speaks Anthropic Messages at this address."""
    listed = [model("fake-1"), model("fake-2")] if models is None else list(models)
    provider = {"baseUrl": url, "api": "anthropic-messages", "apiKey": "dummy-key", "models": listed}
    return {"providers": {"fake": provider}}


class AgentFolders:
    """The folders that a process lives in."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.agent = self.home / ".pi" / "agent"
        self.work = root / "work"
        self.temp = root / "tmp"
        for folder in (self.agent, self.work, self.temp):
            folder.mkdir(parents=True, exist_ok=True)

    def configure(self, models: Record | None = None, settings: Record | None = None) -> None:
        """Write the two files that the agent reads at start."""
        if models is not None:
            (self.agent / "models.json").write_text(json.dumps(models))
        (self.agent / "settings.json").write_text(json.dumps({"quietStartup": True, **(settings or {})}))

    def environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """No key, no proxy, nothing of the developer's own configuration."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "PI_CODING_AGENT_DIR": str(self.agent),
            "PI_OFFLINE": "1",
            "NO_COLOR": "1",
            "TERM": "dumb",
            # A server of a few conversations for a few seconds: its start counts, not its memory.
            "PIGEON_SERVE_WARM_UP": "off",
        }
        return {**kept, **own, **(extra or {})}
