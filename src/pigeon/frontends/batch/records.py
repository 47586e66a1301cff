"""The records of a batch: tasks as people write them, tasks as they are run, and results.

`Task` is a line of the task file. `TaskSpec` is the same with everything resolved: the text of the prompt, absolute
paths, the options of the agent. A result depends on nothing else, so the hash of the spec's canonical form names the
folder of its result, and a resumed batch finds finished tasks by it. `TaskResult` is a line of
`results.jsonl`.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from pigeon.sdk.results import Ended
from pigeon.wire.base import Json
from pigeon.wire.model import Number, Usage, zero_usage

Status = Literal["done", "failed", "limit", "error"]
STATUSES: tuple[Status, ...] = ("done", "failed", "limit", "error")
CHECK_SECONDS = 600.0
HASH_DIGITS = 32


class TaskRecord(Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """A record that people write: absent members are left out."""


class ResultRecord(Struct, rename="camel", frozen=True, kw_only=True):
    """A record of results: every member is present."""


class Workspace(TaskRecord, frozen=True, forbid_unknown_fields=True):
    """Where a task is done: in a fresh copy of a folder, or of a revision of a git repository, or on another machine.

    Attributes:
        folder: a folder; each task gets a copy of it
        git: the address or the path of a git repository
        revision: a branch, tag or commit; by default the repository's HEAD
        url: a folder of another machine, such as `ssh://host/path`, in which the task works as it is
    """

    folder: str | None = None
    git: str | None = None
    revision: str | None = None
    url: str | None = None


class Check(TaskRecord, frozen=True, forbid_unknown_fields=True):
    """The command that decides whether a task succeeded: it did if the command exits with code 0.

    Attributes:
        command: a shell command, run in the workspace when the agent has ended
        seconds: how long it may take
    """

    command: str
    seconds: Number = CHECK_SECONDS


class Task(TaskRecord, frozen=True, forbid_unknown_fields=True):
    """One task, as it is written.

    Attributes:
        prompt: what the agent is told
        id: a name that no other task of the batch has; by default derived from the task itself
        workspace: where the task is done; by default an empty folder
        model: the model; by default that of the batch
        limits: the most that the task may use, such as `{"turns": 30, "cost": 0.5}`
        output: a JSON Schema that the answer must fit
        check: the command that decides whether the task succeeded, as a string or with a time limit
        group: tasks of the same group are counted together in the report
    """

    prompt: str
    id: str | None = None
    workspace: Workspace | None = None
    model: str | None = None
    limits: dict[str, Number] | None = None
    output: dict[str, Json] | None = None
    check: Check | str | None = None
    group: str | None = None


class TaskSpec(TaskRecord, frozen=True):
    id: str
    prompt: str
    workspace: Workspace | None = None
    model: str | None = None
    limits: dict[str, Number] = field(default_factory=dict)
    output: dict[str, Json] | None = None
    check: Check | None = None
    group: str | None = None
    options: dict[str, Json] = field(default_factory=dict)
    # The commit of the revision when the batch began; None without a repository.
    commit: str | None = None


class CheckResult(ResultRecord, frozen=True):
    """How the check of a task ended.

    Attributes:
        passed: whether it exited with code 0, and in time
        exit_code: its exit code; `None` if it was stopped
        seconds: how long it took
        timed_out: whether it was stopped because its time was up
        output: the end of what it printed
    """

    passed: bool
    exit_code: int | None = None
    seconds: float = 0.0
    timed_out: bool = False
    output: str = ""


class TaskResult(ResultRecord, frozen=True):
    """What came of a task.

    Attributes:
        id: the task
        status: `done`, `failed` (by its check, or not allowed), `limit` or `error`
        ended: how the run ended; `None` if there was no run
        error: why it is not done, in one sentence
        check: how the check ended
        usage: tokens and cost
        output: the value that fits the schema of the task
        text: the text of the last answer
        session: the file of the conversation, in the folder of the batch
        folder: the folder of the task, in the folder of the batch
        group: the group of the task
        model: the model that was used
        commit: the commit that the workspace started from
        turns: answers of the model
        tools: how often each tool was called
        agents: how many agents were started, by whichever of them; `usage` has what they used, `turns` and `tools`
            are those of the task's own conversation
        seconds: how long it took
        began: when it started, in milliseconds since 1970
    """

    id: str
    status: Status
    ended: Ended | None = None
    error: str | None = None
    check: CheckResult | None = None
    usage: Usage = field(default_factory=zero_usage)
    output: Any = None
    text: str = ""
    session: str | None = None
    folder: str = ""
    group: str | None = None
    model: str | None = None
    commit: str | None = None
    turns: int = 0
    tools: dict[str, int] = field(default_factory=dict)
    agents: int = 0
    seconds: float = 0.0
    began: int = 0

    @property
    def cost(self) -> float:
        """What the task has cost, in US dollars."""
        return float(self.usage.cost.total)


_canonical = msgspec.json.Encoder(order="deterministic")


def hash_of(record: TaskRecord) -> str:
    """The hash of a record's canonical form: equal for equal content."""
    return hashlib.sha256(_canonical.encode(record)).hexdigest()[:HASH_DIGITS]
