"""Work that the events of a conversation have begun and not ended, found in their lines without decoding all of them.

A supervisor needs it for a client that connects now, and to decide whether a conversation may sleep. A worker needs it
to end the work that its predecessor left open when it died.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from pigeon.wire import codec
from pigeon.wire.agents import UNFINISHED
from pigeon.wire.base import Json
from pigeon.wire.dialogs import REQUEST

# The methods of dialogs that wait for an answer.
ANSWERED = ("select", "confirm", "input", "editor")


class EventHead(Struct, rename="camel"):
    """The members that distinguish the lines of events, without decoding the rest."""

    type: str = ""
    method: str = ""
    agent_id: str = ""
    tool_name: msgspec.Raw = msgspec.Raw(b"")

    def is_about_tool(self, name: str) -> bool:
        """Whether the event is about this tool."""
        return bytes(self.tool_name) == codec.encode(name)


_decoder = msgspec.json.Decoder(EventHead)


def head_of(line: bytes) -> EventHead:
    """The head of a line; an empty one if the line is not an event."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return EventHead()


def is_settled(line: bytes) -> bool:
    """Whether it is the line of an event behind which nothing of a run is open."""
    return head_of(line).type == "agent_settled"


class OpenWork:
    """Tracks open work through the lines of events in order.

    `questions` are those without an answer, and calls of host tools, as lines by id; `first_open_number` is that of the
    first line of the message, tool call or question that is open, `message` that of the message, if there is one, and
    `messages` how many were finished. `queue` is the last line about the messages that wait, `last_run` the run that
    has begun or ended last.
    """

    def __init__(self) -> None:
        self.running = False
        self.run_id: str | None = None
        self.last_run: str | None = None
        self.questions: dict[str, bytes] = {}
        self.message: int | None = None
        self.messages = 0
        self.queue: bytes | None = None
        self._background: set[str] = set()
        self._tools: dict[str, int] = {}
        self._asked: dict[str, int] = {}

    @property
    def is_busy(self) -> bool:
        """True if a stop would cut something off."""
        return self.running or bool(self.questions or self._background)

    @property
    def first_open_number(self) -> int | None:
        """The first event that a client needs in order to see the work in progress."""
        asked = (self._asked[id] for id in self.questions)
        begun = [*self._tools.values(), *asked, *(() if self.message is None else (self.message,))]
        return min(begun, default=None)

    @property
    def queued_messages(self) -> list[Json]:
        """The queued messages in the form of `queue_update`."""
        items = [] if self.queue is None else _decode_members(self.queue).get("items")
        return items if isinstance(items, list) else []

    def track_line(self, line: bytes, number: int) -> EventHead:
        """Follow the next line, with its number; returns its head."""
        head = head_of(line)
        if head.agent_id and head.type != REQUEST:
            return head  # of an agent that the conversation has started, which is a part of its own work
        if head.type == "agent_changed":
            self._track_agent(_decode_members(line).get("agent"))
        elif head.type == "job_changed":
            self._track_job(_decode_members(line).get("job"))
        elif head.type in _ENDS:
            self._track_event(head.type, line, number)
        elif head.type == REQUEST and head.method in ANSWERED:
            self._add_question(line, number)
        elif head.type == REQUEST and head.method == "cancel":
            self.questions.pop(str(_decode_members(line).get("targetId")), None)
        return head

    def _track_agent(self, agent: Json) -> None:
        if isinstance(agent, dict):
            self._track_background(agent.get("agentId"), agent.get("status") in UNFINISHED)

    def _track_job(self, job: Json) -> None:
        if isinstance(job, dict):
            self._track_background(job.get("jobId"), job.get("status") == "running")

    def _track_background(self, id: Json, runs: bool) -> None:
        (self._background.add if runs else self._background.discard)(str(id))

    def _add_question(self, line: bytes, number: int) -> None:
        id = str(_decode_members(line).get("id"))
        self.questions[id] = line
        self._asked = {open_id: self._asked[open_id] for open_id in self.questions if open_id in self._asked}
        self._asked[id] = number

    def _track_event(self, kind: str, line: bytes, number: int) -> None:
        match kind:
            case "agent_start":
                self.running, self.run_id = True, _decode_members(line).get("runId")
                self.last_run = self.run_id
            case "agent_settled":
                self.last_run = _decode_members(line).get("runId")
                self.running, self.run_id, self.message = False, None, None
                self._tools.clear()
            case "message_start":
                self.message = number
            case "message_end":
                self.message = None
                self.messages += 1
            case "tool_execution_start":
                self._tools[str(_decode_members(line).get("toolCallId"))] = number
            case "tool_execution_end":
                self._tools.pop(str(_decode_members(line).get("toolCallId")), None)
            case "queue_update":
                self.queue = line
            case "agent_restarted":
                self.queue = None
                self._background.clear()
            case "host_tool_call":
                self._add_question(line, number)
            case "host_tool_cancel":
                self.questions.pop(str(_decode_members(line).get("targetId")), None)
            case _:
                self.questions.pop(str(_decode_members(line).get("id")), None)


_ENDS = frozenset(
    (
        "agent_start",
        "agent_settled",
        "message_start",
        "message_end",
        "tool_execution_start",
        "tool_execution_end",
        "host_tool_call",
        "host_tool_cancel",
        "permission_resolved",
        "queue_update",
        "agent_restarted",
    )
)


def read_open_work(lines: Iterable[tuple[int, bytes]]) -> OpenWork:
    """The work that is open after these numbered lines."""
    work = OpenWork()
    for number, line in lines:
        work.track_line(line, number)
    return work


def _decode_members(line: bytes) -> dict[str, Any]:
    value = codec.decode(line)
    return value if isinstance(value, dict) else {}
