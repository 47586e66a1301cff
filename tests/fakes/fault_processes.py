"""The real program, ended at a random moment of its work by a signal or the end of its input.

What it told before is judged as in `fakes.fault_injection`: nothing ended twice, and what was announced is in the file.
"""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

from fakes.agent_folders import AgentFolders
from fakes.prompt_ends import Record, judge
from fakes.rpc_process import RpcProcess
from pigeon.session.history.reading import load_session

HOW = ("SIGTERM", "SIGHUP", "SIGINT", "SIGKILL", "EOF", "EOF", "SIGTERM")
CODES = {"SIGTERM": (143,), "SIGHUP": (129,), "SIGINT": (-2, 130), "EOF": (0,)}


def end_somewhere(seed: int, dialect: str, root: Path) -> str:
    """Play once; returns how it was ended."""
    chance = random.Random(f"{seed}/{dialect}/process")
    how = chance.choice(HOW)
    folders = AgentFolders(root)
    folders.configure({}, {"retry": {"baseDelayMs": 1}})
    script = folders.temp / "script.json"
    script.write_text(json.dumps({"replies": [_reply(chance) for _ in range(6)], "default": "Nothing more."}))
    agent = RpcProcess(folders, "--model", f"scripted/{script}", "--dialect", dialect)
    try:
        sent = _commands(chance)
        agent.send(*sent)
        agent.wait(lambda record: True)  # before, a signal finds no handler
        _wait_records(agent, chance.randrange(1, 80))
        code = _end(agent, how)
    except BaseException:
        agent.kill()
        raise
    assert code in CODES.get(how, (None,)), f"exit code {code} after {how}"
    judge(agent.records, sent, dialect, settled=False)
    _judge_files(folders.agent, agent.records)
    return how


def _end(agent: RpcProcess, how: str) -> int | None:
    """End it; its exit code, none after SIGKILL, which may cut off a line."""
    if how == "SIGKILL":
        agent.kill()
        return None
    if how == "EOF":
        agent.close_stdin()
    else:
        agent.signal(signal.Signals[how])
    return agent.wait_exit()


def _reply(chance: random.Random) -> Any:
    call: Record = {
        "name": "bash",
        "arguments": {"command": chance.choice(["echo hi", "sleep 600", "sleep 600 & sleep 600"])},
    }
    return chance.choice(
        [
            "word " * 30,
            {"text": "slow " * 30, "chunkDelayMs": 2},
            {"text": "x", "toolCalls": [call]},
            {"toolCalls": [{"name": "ls", "arguments": {}}, {"name": "unknown", "arguments": {}}]},
            {"text": "half", "error": {"message": "busy", "retryable": True}},
            {"text": "half", "hang": True},
        ]
    )


def _commands(chance: random.Random) -> list[Record]:
    prompt: Record = {"type": "prompt", "message": "go"}
    more: list[Record] = [
        prompt,
        {**prompt, "streamingBehavior": "followUp"},
        {**prompt, "streamingBehavior": "steer"},
        {"type": "abort"},
        {"type": "new_session"},
        {"type": "compact"},
        {"type": "get_state"},
        {"type": "set_session_name", "name": "n"},
        {"type": "abort_and_prompt", "message": "instead"},
        {"type": "bash", "command": chance.choice(["echo host", "sleep 600"])},
    ]
    commands = [prompt, *(chance.choice(more) for _ in range(chance.randrange(8)))]
    return [{"id": f"c{number}", **command} for number, command in enumerate(commands)]


def _wait_records(agent: RpcProcess, count: int) -> None:
    """Wait for so many records, or until the program waits for us."""
    try:
        seen = 0

        def enough(record: Record) -> bool:
            nonlocal seen
            seen += 1
            return seen >= count

        agent.wait(enough, deadline=0.2)
    except AssertionError:
        return


def _judge_files(folder: Path, records: list[Record]) -> None:
    kept = set()
    for path in folder.rglob("*.jsonl"):
        loaded = load_session(str(path)) if path.stat().st_size else None
        for line in loaded.lines if loaded is not None else ():
            if line.type == "message":
                kept.add(json.dumps(json.loads(line.raw)["message"], sort_keys=True))
    for record in records:
        if record["type"] == "message_end":
            message = json.dumps(record["message"], sort_keys=True)
            assert message in kept, f"announced and not in the file: {message[:300]}"
