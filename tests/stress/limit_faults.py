"""Fault cases with limits: `stress.agent_faults` with all five limits on the conversation, on single prompts and as
options, models that have prices, final answers, and a count of its own at the model's side.

Each request that reaches the model is noted with what it used as far as the model had told it, so the judgement does
not rest on what Pigeon counted. `make faults-limits N=500 SEED=1` plays many and prints the figures.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from pigeon.agent.inference import Delta, Metered, ModelRequest
from pigeon.wire.model import price_usage
from stress.agent_faults import FaultCase, play

Record = dict[str, Any]
PRICES = {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LATE = 5.0  # seconds for stopping what a run was doing, on a busy machine
ROUNDING = 1e-9


class NotedRequest:
    """One request that reached the model: where in the records, in which conversation, and what it used."""

    def __init__(self, case: LimitCase, request: ModelRequest) -> None:
        self.place = len(case.records)
        self.is_turn = request.cache != "none"
        self.of = case.conversation()
        self.prompt_tokens = 0
        self.use = {"turns": int(self.is_turn), "tokens": 0, "cost": 0.0}
        self._request = request

    def on_delta(self, delta: Delta) -> None:
        """What the model has told so far."""
        if isinstance(delta, Metered):
            usage = price_usage(delta.usage, self._request.model.cost, delta.rate)
            self.prompt_tokens = usage.total_tokens - usage.output
            self.use |= {"tokens": usage.total_tokens, "cost": float(usage.cost.total)}


class LimitCase(FaultCase):
    """A case with limits of every kind."""

    patience = 0.5
    figures: ClassVar[Counter[str]] = Counter()

    def __init__(self, seed: int, dialect: str, root: Path) -> None:
        super().__init__(seed, dialect, root)
        self.requests: list[NotedRequest] = []
        self._options = self._some_limits(larger=4) if self.chance.random() < 0.3 else {}
        self._set: list[tuple[int, Record]] = [(0, self._options)]
        self._seen = 0

    # What is different from other cases.

    def more_options(self) -> Record:
        return {"limits": self._options} if self._options else {}

    def more_of_the_script(self) -> Record:
        return {"cost": PRICES, "chunk": [100, 900]}

    def more_of_a_prompt(self) -> Record:
        more: Record = {"limits": self._some_limits()} if self.chance.random() < 0.7 else {}
        return more | ({"outputSchema": SCHEMA} if self.chance.random() < 0.25 else {})

    def _some_limits(self, larger: int = 1) -> Record:
        chance = self.chance
        every = {
            "turns": larger * chance.randrange(1, 5),
            "toolCalls": larger * chance.randrange(1, 4),
            "tokens": larger * chance.randrange(500, 20_000),
            "cost": larger * chance.uniform(0.002, 0.08),
            "seconds": chance.choice([0.001, 0.1, 5, 60, 60]),
        }
        return {name: every[name] for name in chance.sample(list(every), chance.randrange(1, 3))}

    def _replies(self) -> list[Any]:
        return [self._reply() for _ in range(self.chance.randrange(3, 20))]

    def _reply(self) -> Any:
        roll = self.chance.random()
        if roll < 0.6:
            calls = [
                {"name": "read", "arguments": {"path": f"{self.chance.random()}.txt"}},
                {"name": "ls", "arguments": {}},
                {"name": "write", "arguments": {"path": "a.txt", "content": "a"}},
            ]
            text = "word " * self.chance.choice([1, 10, 300, 3000])
            return {"text": text, "toolCalls": self.chance.sample(calls, self.chance.randrange(1, 4))}
        if roll < 0.7:
            return "word " * 100
        if roll < 0.8:
            answer = self.chance.choice([{"n": 1}, {"n": "one"}, {}])
            return {"text": "So:", "toolCalls": [{"name": "final_answer", "arguments": answer}]}
        return super()._reply()

    def _commands(self) -> list[Record]:
        limits = self.chance.choice([{}, self._some_limits(), self._some_limits(larger=4)])
        leaf = self.chance.choice(["compact", "navigate_tree"])
        more = [one for one in super()._commands() if one["type"] == leaf]
        return [*super()._commands(), *more, {"type": "set_limits", "limits": limits}, {"type": "get_limits"}]

    async def _act(self) -> None:
        """Every second case is left alone more: its runs come to an end by themselves, unless they hang."""
        if self.chance.random() < 0.5:
            await super()._act()
            return
        for _ in range(self.chance.randrange(1, 6)):
            self._prompt()
            for _ in range(self.chance.randrange(3)):
                await self._turns()
                self._send({"type": self.chance.choice(["steer", "follow_up", "get_limits"]), "message": "and"})
            await asyncio.wait({asyncio.ensure_future(self._all_over())}, timeout=self.patience)
            self._answer_questions()
            if self.chance.random() < 0.4:
                self._do_something()

    def spoil(self) -> str | None:
        return super().spoil() if self.chance.random() < 0.4 else None

    # The model's side.

    def on_model_request(self, request: ModelRequest) -> Any:
        self.requests.append(NotedRequest(self, request))
        return self.requests[-1].on_delta

    def conversation(self) -> tuple[str, int]:
        """Which conversation is in use, and which of the limits that were set for it so far."""
        for place, record in enumerate(self.records[self._seen :], self._seen):
            if record["type"] == "response" and record["command"] == "set_limits" and record["success"]:
                self._set.append((place, record["data"]["limits"]))
        self._seen = len(self.records)
        return self._session.journal.session_id, len(self._set) - 1

    # The judgement.

    def judge_more(self, records: list[Record]) -> None:
        self.conversation()
        given = {command["id"]: command.get("limits") for command in self.sent}
        begun, limits = 0, {}
        for place, record in enumerate(records):
            if record["type"] == "response" and (record.get("data") or {}).get("disposition") == "started":
                begun, limits = place, given[record["id"]] or {}
            elif record["type"] == "agent_settled":
                self._judge_run(records, begun, place, limits)
        for of in dict.fromkeys(one.of for one in self.requests):
            self._judge_use([one for one in self.requests if one.of == of], self._set[of[1]][1])
        self.figures["requests"] += len(self.requests)
        self.figures["summaries"] += sum(not one.is_turn for one in self.requests)

    def _judge_run(self, records: list[Record], begun: int, ended: int, limits: Record) -> None:
        run, settled = records[begun:ended], records[ended]
        self.figures["runs"] += 1
        self.figures["runs with limits"] += bool(limits)
        self.figures[f"ended {settled['reason']}"] += 1
        self._judge_use([one for one in self.requests if begun < one.place <= ended], limits)
        made = sum(one["type"] == "tool_execution_end" and _counts(one) for one in run)
        assert made <= limits.get("toolCalls", made), (made, limits)
        took = self.times[ended] - self.times[begun]
        assert took <= limits.get("seconds", took) + LATE, (took, limits)
        assert (settled["reason"] == "limit") == ("limit" in settled), settled
        refused = any(str(_error(one)).startswith("Limit reached") for one in run)
        assert not refused or settled["reason"] in ("limit", "aborted"), settled
        if "limit" in settled:
            self._judge_reason(settled, [limits, *(given for place, given in self._set if place <= ended)])

    def _judge_reason(self, settled: Record, in_force: list[Record]) -> None:
        limit = settled["limit"]
        self.figures[f"ended by {limit['name']}"] += 1
        assert not settled["aborted"]
        assert set(limit) == {"name", "allowed", "reached"}, limit
        if limit["name"] == "repeated_calls":
            return
        assert any(given.get(limit["name"]) == limit["allowed"] for given in in_force), (limit, in_force)
        if limit["name"] in ("turns", "toolCalls"):
            assert limit["reached"] == limit["allowed"], limit
        if limit["name"] == "seconds":
            assert limit["allowed"] <= limit["reached"] <= limit["allowed"] + LATE, limit

    def _judge_use(self, requests: list[NotedRequest], limits: Record) -> None:
        """Nothing is asked for that could not fit: with what was used before, a prompt is within the limit, so that no
        more than the answer itself is beyond it."""
        for name in ("turns", "tokens", "cost"):
            used = 0.0
            for one in requests:
                if name == "turns" and not one.is_turn:
                    continue
                least = {"turns": 1.0, "tokens": one.prompt_tokens, "cost": 0.0}[name]
                assert used + least <= limits.get(name, used + least) + ROUNDING, (name, used, least, limits)
                used += one.use[name]
            if used > limits.get(name, used) + ROUNDING:
                self.figures[f"{name} passed by a part of the last answer"] += 1


def _counts(ended: Record) -> bool:
    """Whether a tool call that has ended was made; the final answer is none."""
    text = str(ended["result"])
    unmade = ("was not run. Limit", "Skipped due", "Invalid arguments for tool", "token limit")
    aborted_before = "aborted" in text.lower() and "durationMs" not in ended
    return ended["toolName"] != "final_answer" and not aborted_before and not any(one in text for one in unmade)


def _error(record: Record) -> Any:
    return record["message"].get("errorMessage") if record["type"] == "message_end" else None


def main(arguments: list[str]) -> int:
    """`python -m stress.limit_faults N SEED`: N cases, and figures of what happened in them."""
    count, first, began = int(arguments[0]), int(arguments[1]), time.monotonic()
    LimitCase.patience = 2.0
    tally = asyncio.run(play(list(range(first, first + count)), ("pi-latest",), kind=LimitCase))
    for failure in tally.failures:
        print(failure)  # noqa: T201
    figures = ", ".join(f"{number} {name}" for name, number in sorted(LimitCase.figures.items()))
    took = time.monotonic() - began
    print(f"{tally.cases} cases, {tally.prompts} prompts, {len(tally.failures)} failures, {took:.0f} s; {figures}")  # noqa: T201
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
