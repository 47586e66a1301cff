"""Fault cases with trees of agents: `stress.agent_faults` with agents of up to three levels, limits on the conversation
and on types of agents, questions that nobody answers, aborts of single agents, commands in the background, and copies
of the repository; and the real program, killed anywhere and started again.

Every prompt and every agent must end exactly once, no limit be passed by more than the answers that were under way, and
no process be left. `make faults-agents N=500 SEED=1` plays many; a few are part of the tests.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from pigeon.agent.inference import Delta, Finished, Metered, ModelRequest
from pigeon.wire.agents import UNFINISHED, AgentType
from pigeon.wire.model import price_usage
from pigeon.wire.steering import Limits
from stress.agent_faults import DIALECTS, SETTINGS, FaultCase, Tally, _judge_pairs, play
from stress.limit_faults import PRICES, ROUNDING, _counts
from support.agent_folders import AgentFolders
from support.agent_process import LAST_EVENTS, RpcProcess
from support.processes import eventually, kill_all, processes_in

Record = dict[str, Any]
LEVELS = ("L1", "L2", "L3")
LEFT_WITHIN = 10.0
COMMANDS = ("echo hi", "sleep 600", "sleep 600 & sleep 600", "kill -9 $PPID", "yes | head -c 300000")
TYPES = [
    AgentType(name="short", description="d", limits=Limits(turns=2)),
    AgentType(name="careful", description="d", permissions={"ask": ["ls", "bash"]}),
    AgentType(name="reader", description="d", tools=["read", "ls"]),
]
# What a case begins with, and what it may do to one of its agents.
OF_AGENTS = ("abort_agent", "steer_agent", "get_agent_messages", "merge_agent")
OTHER_CONVERSATIONS = ("new_session", "switch_session", "clone", "fork", "branch")
OF_ALL = ("get_agents", "get_jobs", "get_session_stats", "get_limits")


def task_call(chance: random.Random, level: int, number: int) -> Record:
    """A call that starts an agent of the next level."""
    given: Record = {"prompt": f"{LEVELS[level]} number {number}", "title": "part"}
    if chance.random() < 0.2:
        given["background"] = True
    if chance.random() < 0.4:
        given["agent"] = chance.choice(["short", "careful", "reader", "explore", "nobody"])
    if chance.random() < 0.1:
        given["isolation"] = "worktree"
    if chance.random() < 0.1:
        given["output_schema"] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return {"name": "task", "arguments": given}


def reply_of_level(chance: random.Random, level: int, number: int) -> Any:
    """What an agent of a level says; 0 is the conversation itself."""
    calls: list[Record] = [
        {"name": "ls", "arguments": {}},
        {"name": "write", "arguments": {"path": "a.txt", "content": "a"}},
        {"name": "jobs", "arguments": {"action": chance.choice(["list", "wait"]), "seconds": 0.05}},
    ]
    if chance.random() < 0.3:
        command = chance.choice(COMMANDS)
        background = {"background": True} if chance.random() < 0.5 else {}
        calls.append({"name": "bash", "arguments": {"command": command, **background}})
    wanted = 0.75 if level == 0 else 0.5
    if level < len(LEVELS) and chance.random() < wanted:
        started = [task_call(chance, level, number * 10 + one) for one in range(chance.randrange(1, 4))]
        made = [*started, *chance.sample(calls, chance.randrange(2))]
        return {"text": "word " * chance.choice([1, 50]), "toolCalls": made}
    return chance.choice(
        [
            "word " * chance.choice([1, 20, 500]),
            {"toolCalls": chance.sample(calls, 2)},
            {"text": "half", "error": {"message": "broken", "retryable": chance.random() < 0.5}},
            {"text": "half", "hang": chance.random() < 0.5},
            '{"n": 1}',
        ]
    )


def script_of(chance: random.Random) -> Record:
    """Replies for the conversation, and for each level of agents."""
    rules: list[Record] = []
    for level, word in enumerate(LEVELS, 1):
        replies = [reply_of_level(chance, level, number) for number in range(chance.randrange(2, 8))]
        rules += [{"when": {"user": word}, "reply": reply, "times": 1} for reply in replies]
        rules.append({"when": {"user": word}, "reply": f"Done at {word.lower()}."})
    replies = [reply_of_level(chance, 0, number) for number in range(chance.randrange(2, 6))]
    return {"rules": rules, "replies": replies, "default": "Nothing more.", "cost": PRICES, "chunk": [100, 900]}


class SeenRequest:
    """One request that reached the model: in which conversation, and what it used as far as the model has told."""

    def __init__(self, case: TreeCase, request: ModelRequest) -> None:
        self.of = case.conversation_id()
        self.is_turn = request.cache != "none"
        self.used = {"tokens": 0.0, "cost": 0.0}
        self.has_ended = False
        self._request = request

    def on_delta(self, delta: Delta) -> None:
        if isinstance(delta, Metered):
            usage = price_usage(delta.usage, self._request.model.cost, delta.rate)
            self.used = {"tokens": float(usage.total_tokens), "cost": float(usage.cost.total)}
        elif isinstance(delta, Finished):
            self.has_ended = True


class TreeCase(FaultCase):
    """One conversation with a tree of agents, and what happens to it."""

    figures: ClassVar[Counter[str]] = Counter()

    def __init__(self, seed: int, dialect: str, root: Path) -> None:
        super().__init__(seed, dialect, root)
        chance = self.chance
        self._limits: Record = {}
        if chance.random() < 0.6:
            every = {
                "turns": chance.randrange(2, 20),
                "toolCalls": chance.randrange(2, 20),
                "tokens": chance.randrange(3_000, 60_000),
                "cost": chance.uniform(0.01, 0.3),
                "seconds": chance.choice([0.3, 60]),
            }
            self._limits = {name: every[name] for name in chance.sample(list(every), chance.randrange(1, 3))}
        self._requests: list[SeenRequest] = []
        self._passed: list[str] = []

    # What is different from other cases.

    def more_options(self) -> Record:
        tools = ("+task", "+jobs")
        return {"tools": tools, "agents": TYPES, **({"limits": self._limits} if self._limits else {})}

    def _configure(self) -> None:
        chance = self.chance
        agents = {"maxDepth": chance.choice([1, 2, 3, 3]), "maxParallel": chance.choice([1, 2, 8])}
        self._agent.configure({**SETTINGS, "agents": agents}, [])
        (self.root / "script.json").write_text(json.dumps(script_of(chance)))
        if chance.random() < 0.15:
            make_repository(self._agent.work)

    def begin(self) -> None:
        self._send({"type": "hello", "features": ["agents"]})
        if self.dialect == "omp":
            self._send({"type": "set_subagent_subscription", "level": "events"})
        if self.chance.random() < 0.3:
            rules: Record = {"ask": ["write", "ls", "bash"]}
            if self.chance.random() < 0.7:
                rules["timeoutMs"] = 50
            self._send({"type": "set_permissions", "permissions": rules})

    def more_of_a_prompt(self) -> Record:
        return {"limits": {"turns": self.chance.randrange(1, 12)}} if self.chance.random() < 0.2 else {}

    def _commands(self) -> list[Record]:
        chance = self.chance
        known = sorted({record["agent"]["agentId"] for record in self.records if record["type"] == "agent_changed"})
        agent = chance.choice([*known, "nobody"])
        jobs = [record["job"]["jobId"] for record in self.records if record["type"] == "job_changed"]
        calls = [record["toolCallId"] for record in self.records if record["type"] == "tool_execution_start"]
        spawned: Record = {"type": "spawn_agent", "message": f"{chance.choice(LEVELS)} of the host"}
        if known and chance.random() < 0.5:
            spawned["resume"] = agent
        mine: list[Record] = [
            *({"type": kind, "agentId": agent, "message": "hurry"} for kind in OF_AGENTS),
            *({"type": kind} for kind in OF_ALL),
            spawned,
            {"type": "stop_job", "jobId": chance.choice([*jobs, "job-1"])},
            {"type": "get_job_output", "jobId": chance.choice([*jobs, "job-1"])},
            {"type": "background_tool", "toolCallId": chance.choice([*calls, "none"])},
        ]
        for one in mine:
            if one["type"] in ("abort_agent", "get_agent_messages", "merge_agent"):
                del one["message"]
        return [*mine, *mine, *super()._commands()]

    def spoil(self) -> str | None:
        return super().spoil() if self.chance.random() < 0.4 else None

    async def _turns(self) -> None:
        """Now and then there is time for what processes and timers do."""
        await super()._turns()
        if self.chance.random() < 0.3:
            await asyncio.wait({asyncio.ensure_future(self._all_over())}, timeout=self.chance.choice([0.01, 0.1, 0.3]))

    def _is_calm(self) -> bool:
        return super()._is_calm() and not self._session.dependencies.agents.describe_running()

    # The model's side.

    def conversation_id(self) -> str:
        return self._session.journal.session_id

    def on_model_request(self, request: ModelRequest) -> Any:
        """A request that could not fit must not come: with what answers have used that have ended, it is within."""
        seen = SeenRequest(self, request)
        before = [one for one in self._requests if one.of == seen.of]
        for name in ("tokens", "cost"):
            used = sum(one.used[name] for one in before if one.has_ended)
            if used > self._limits.get(name, used) + ROUNDING:
                self._passed.append(f"{name}: {used} of {self._limits[name]} were used, and it asked again")
        turns = sum(one.is_turn for one in (*before, seen))
        if turns > self._limits.get("turns", turns):
            self._passed.append(f"{turns} turns of {self._limits['turns']}")
        self._requests.append(seen)
        return seen.on_delta

    # The judgement.

    def own_records(self) -> list[Record]:
        return [record for record in self.records if "agentId" not in record]

    def judge_more(self, records: list[Record]) -> None:
        assert not self._passed, self._passed
        changes = [record["agent"] for record in records if record["type"] == "agent_changed"]
        ids = dict.fromkeys(info["agentId"] for info in changes)
        for id in ids:
            self._judge_agent(id, [info["status"] for info in changes if info["agentId"] == id], records)
        self._judge_calls(records)
        self._judge_processes()
        self.figures["requests"] += len(self._requests)
        self.figures["agents"] += len(ids)
        depths = Counter(info["depth"] for info in {info["agentId"]: info for info in changes}.values())
        for depth, count in depths.items():
            self.figures[f"agents {depth} deep"] += count

    def _judge_agent(self, id: str, statuses: list[str], records: list[Record]) -> None:
        """Each of its lives begins once and ends once; what it begins also ends, by its own last event."""
        lives = statuses.count("waiting")
        ends = [status for status in statuses if status not in UNFINISHED]
        assert statuses[0] == "waiting", statuses
        assert len(ends) == lives, f"{id} began {lives} times and ended as {ends}"
        assert statuses[-1] not in UNFINISHED, statuses
        for status in ends:
            self.figures[f"agents ended {status}"] += 1
        own = [record for record in records if record.get("agentId") == id and record["type"] != "extension_ui_request"]
        _judge_pairs([record for record in own if record["type"] != "response"], settled=True)
        if self.dialect != "omp":
            settled = [record for record in own if record["type"] == "agent_settled"]
            assert len(settled) == lives, f"{id} settled {len(settled)} times in {lives} lives"
            assert {one["reason"] for one in settled} <= {"done", "error", "limit", "aborted", "denied"}
        else:
            frames = [record["payload"] for record in records if record["type"] == "subagent_lifecycle"]
            said = [frame["status"] for frame in frames if frame["id"] == id]
            assert said.count("started") == lives == len(said) - lives, said

    def _judge_calls(self, records: list[Record]) -> None:
        """A call of the conversation has one result, which says how the agent ended."""
        ended = [record for record in records if record["type"] == "tool_execution_end"]
        for record in ended:
            details = record["result"].get("details") or {}
            if record["toolName"] == "task" and "ended" in details:
                assert record["isError"] == (details["ended"] != "done"), record
        made = sum(map(_counts, ended))
        if not any(command["type"] in OTHER_CONVERSATIONS for command in self.sent):
            assert made <= self._limits.get("toolCalls", made), (made, self._limits)

    def _judge_processes(self) -> None:
        mark = f"HOME={self._agent.home}"
        if not eventually(lambda: not processes_in(mark), LEFT_WITHIN):
            left = processes_in(mark)
            kill_all(left)
            raise AssertionError(f"left running: {left}")


def make_repository(folder: Path) -> None:
    """A repository with one commit."""
    person = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), (*person, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def kill_and_resume(seed: int, dialect: str, root: Path) -> Counter[str]:
    """Kill the real program somewhere, start it again in the same session, and continue one of its agents."""
    chance = random.Random(f"{seed}/{dialect}/tree")
    figures: Counter[str] = Counter()
    folders = AgentFolders(root)
    folders.configure({}, {**SETTINGS, "agents": {"maxDepth": 3}})
    script = folders.temp / "script.json"
    script.write_text(json.dumps(script_of(chance)))
    if chance.random() < 0.3:
        make_repository(folders.work)
    options = ("--model", f"scripted/{script}", "--dialect", dialect, "--tools", "+task,+jobs")
    agent = RpcProcess(folders, *options)
    try:
        file = agent.ask("get_state")["sessionFile"]
        agent.ask("hello", features=["agents"])
        agent.send({"id": "c1", "type": "prompt", "message": "go"})
        _wait_for_records(agent, chance.randrange(3, 250))
        agent.signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        mark = agent._mark
        assert eventually(lambda: not processes_in(mark), LEFT_WITHIN), f"left running: {processes_in(mark)}"
    finally:
        agent.kill()
    started = {one["agent"]["agentId"] for one in agent.records if one["type"] == "agent_changed"}
    if not Path(file).exists():
        return figures
    script.write_text(json.dumps({"default": "All done."}))
    again = RpcProcess(folders, *options, "--session", file)
    again.last_event = LAST_EVENTS[dialect]
    try:
        agents = {one["agentId"]: one for one in again.ask("get_agents")["agents"]}
        assert all(one["status"] not in UNFINISHED for one in agents.values()), agents
        figures["agents known after a kill"] += len(agents)
        assert started - agents.keys() == set() or len(started - agents.keys()) <= 1, (started, agents)
        again.run("and now?")
        messages = again.ask("get_messages")["messages"]
        _judge_results_after_kill(messages, agents)
        for one in list(agents)[:1]:
            _continue_agent(again, one)
            figures["agents continued after a kill"] += 1
        again.close()
    except BaseException:
        again.kill()
        raise
    return figures


def _continue_agent(agent: RpcProcess, agent_id: str) -> None:
    """Continue one that may have died with the program before."""
    answer = agent.request("get_agent_messages", agentId=agent_id)
    assert answer["success"], answer
    agent.ask("hello", features=["agents"])
    place = agent.mark()
    agent.ask("spawn_agent", message="go on", resume=agent_id, agent="general")
    end = agent.wait(
        lambda record: record["type"] == "agent_changed" and record["agent"]["status"] not in UNFINISHED, place
    )
    assert end["agent"]["status"] == "done", end


def _judge_results_after_kill(messages: list[Record], agents: Record) -> None:
    """Every call has one result; one that was open and had started an agent names it."""
    results = Counter(message["toolCallId"] for message in messages if message["role"] == "toolResult")
    for message in messages:
        if message["role"] == "assistant" and message["stopReason"] == "toolUse":
            for block in message["content"]:
                if block["type"] == "toolCall":
                    assert results[block["id"]] == 1, block
    of_call = {one.get("toolCallId"): id for id, one in agents.items() if one["depth"] == 1}
    for message in messages:
        text = str(message["content"])
        if message["role"] == "toolResult" and message["toolName"] == "task" and "interrupted" in text:
            id = of_call.get(message["toolCallId"])
            assert id is None or id in text, message


def _wait_for_records(agent: RpcProcess, count: int) -> None:
    end = time.monotonic() + 3
    while agent.mark() < count and time.monotonic() < end:
        eventually(lambda: agent.mark() >= count, 0.05)


def play_kills(seeds: list[int], tally: Tally, figures: Counter[str]) -> None:
    """Kill and resume once for each seed."""
    for seed in seeds:
        root = Path(tempfile.mkdtemp(prefix="pigeon-tree-"))
        dialect = DIALECTS[seed % len(DIALECTS)]
        try:
            figures.update(kill_and_resume(seed, dialect, root))
        except Exception:
            tally.failures.append(f"kill of seed {seed}, {dialect}:\n{traceback.format_exc(limit=-3)}")
        finally:
            shutil.rmtree(root, ignore_errors=True)
        tally.processes += 1


def main(arguments: list[str]) -> int:
    """`python -m stress.tree_faults N SEED`: four of five runs in this process, the others with the real program."""
    count, first, began = int(arguments[0]), int(arguments[1]), time.monotonic()
    kills = count // 5
    tally = Tally()
    seeds = list(range(first, first + (count - kills) // len(DIALECTS)))
    for start in range(0, len(seeds), 20):
        part = asyncio.run(play(seeds[start : start + 20], side_by_side=6, kind=TreeCase))
        tally.cases += part.cases
        tally.prompts += part.prompts
        tally.failures += part.failures
        print(f"{tally.cases} cases, {tally.prompts} prompts, {len(tally.failures)} failures", flush=True)  # noqa: T201
        for failure in part.failures:
            print(failure, flush=True)  # noqa: T201
    play_kills(list(range(first, first + kills)), tally, TreeCase.figures)
    figures = ", ".join(f"{number} {name}" for name, number in sorted(TreeCase.figures.items()))
    for failure in tally.failures:
        print(failure)  # noqa: T201
    took = time.monotonic() - began
    print(f"{tally.cases} cases, {tally.prompts} prompts, {tally.processes} kills, {len(tally.failures)} failures, "  # noqa: T201
          f"{took:.0f} s; {figures}")  # fmt: skip
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
