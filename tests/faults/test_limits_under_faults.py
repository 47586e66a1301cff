"""Runs with limits, and faults at random points: no run uses more than its limit and one answer, and each says why it
ended.

`COUNT` cases are part of the tests; 500 were played with `PIGEON_LIMIT_CASES=500`.
"""

from __future__ import annotations

import os
from typing import Any

from fakes.fault_injection import FaultCase, play
from pigeon.agent.inference import ModelRequest

Record = dict[str, Any]
COUNT = int(os.environ.get("PIGEON_LIMIT_CASES", "60"))


class LimitedCase(FaultCase):
    """A case whose prompts have limits."""

    requests: list[int]
    runs = 0
    limited = 0

    def more_of_a_prompt(self) -> Record:
        chance = self.chance
        every = {
            "turns": chance.randrange(1, 5),
            "toolCalls": chance.randrange(1, 4),
            "tokens": chance.choice([500, 3000, 6000, 12000]),
            "seconds": chance.choice([0.001, 0.05, 5]),
        }
        return {"limits": {name: every[name] for name in chance.sample(list(every), chance.randrange(1, 3))}}

    def asked(self, request: ModelRequest) -> None:
        """Where in the records a turn was asked for; a summary is none."""
        if request.cache != "none":
            self.requests = [*getattr(self, "requests", []), len(self.records)]

    def judge_more(self, records: list[Record]) -> None:
        given = {command["id"]: command.get("limits") for command in self.sent}
        begun, limits = 0, None
        for at, record in enumerate(records):
            if record["type"] == "response" and (record.get("data") or {}).get("disposition") == "started":
                begun, limits = at, given[record["id"]]
            elif record["type"] == "agent_settled":
                self._judge_run(records, begun, at, limits or {})

    def _judge_run(self, records: list[Record], begun: int, ended: int, limits: Record) -> None:
        run, settled = records[begun:ended], records[ended]
        assert (settled["reason"] == "limit") == ("limit" in settled), settled
        LimitedCase.runs += 1
        turns = sum(begun <= place <= ended for place in getattr(self, "requests", []))
        made = [one for one in run if one["type"] == "tool_execution_end" and "was not run. Limit" not in str(one)]
        answers = [one["message"] for one in run if one["type"] == "message_end"]
        tokens = [one["usage"]["totalTokens"] for one in answers if one["role"] == "assistant"]
        assert turns <= limits.get("turns", turns), (turns, limits)
        skipped = [one for one in made if "Skipped" in str(one) or "Invalid arguments" in str(one)]
        assert len(made) - len(skipped) <= limits.get("toolCalls", len(made)) + _unmade(made), (len(made), limits)
        assert sum(tokens) - max(tokens, default=0) <= limits.get("tokens", sum(tokens)), (tokens, limits)
        if "limit" in settled:
            LimitedCase.limited += 1
            limit = settled["limit"]
            assert limit["name"] == "repeated_calls" or limits[limit["name"]] == limit["allowed"], (limit, limits)
            assert not settled["aborted"]


def _unmade(ended: list[Record]) -> int:
    """Calls that an abort or the end of an answer kept from being made."""
    return sum("aborted" in str(one) or "token limit" in str(one) for one in ended)


async def test_no_run_passes_its_limit_by_more_than_one_answer_whatever_breaks() -> None:
    tally = await play(list(range(COUNT)), ("pi-latest",), side_by_side=12, kind=LimitedCase)
    assert tally.failures == []
    assert LimitedCase.runs >= COUNT // 2
    assert LimitedCase.limited > COUNT // 10
