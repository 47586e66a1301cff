"""How the supervisor follows the event log of a conversation, and sends each client the events that it lacks.

Each client's events are read from the log on disk at that client's position, and an answer is sent after the events
that came before it. So a client that reads slowly delays nothing, and costs no memory except for its unread answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Literal

from pigeon.frontends.serve.client_rights import has_needed_scope
from pigeon.frontends.serve.counts import ServeCounts
from pigeon.system.append_file import make_private_folder
from pigeon.transport.event_log import LogEnd, LogReader, lines_since, segments_in
from pigeon.wire import codec
from pigeon.wire.base import Absent, Json
from pigeon.wire.commands import HostToolResult, Scope
from pigeon.wire.open_work import OpenWork, head_of, is_settled, read_open_work

if TYPE_CHECKING:
    from pigeon.frontends.serve.conversation import ServedConversation

MOST_UNREAD = 64 * 1024 * 1024
# Why a client is disconnected: it does not read its answers, its token was revoked, the conversation is gone.
WatchEnd = Literal["too slow", "revoked", "deleted"]
MOST_RUNS = 64
# Output of a client's `bash` carries the id of that command, which in the log is the supervisor's own id.
MOST_BASH_IDS = 100
# How long extensions may process a prompt before its run is announced.
ACCEPTED_SECONDS = 60.0
# When to retry what could not be done now.
AGAIN_SECONDS = 1.0
UNSERVED = "No client that could run this tool was connected for {} seconds"


class FollowedLog:
    """Reads the events that a worker has announced. `on_plan_written` is called when the agent has written its plan."""

    def __init__(
        self, folder: str, counts: ServeCounts, on_plan_written: Callable[[], None], now: Callable[[], float]
    ) -> None:
        make_private_folder(folder)
        self.folder = folder
        self.end = LogEnd((segments_in(folder) or [1])[-1], 0)
        self.work = OpenWork()
        self._counts = counts
        self._on_plan_written = on_plan_written
        self._now = now
        # When open questions were asked; None for those from before this supervisor.
        self._asked: dict[str, float | None] = {}
        self._reader: LogReader | None = None
        self._last: int | None = None
        self._runs: deque[str] = deque(maxlen=MOST_RUNS)
        self._expected_at: float | None = None

    @property
    def number(self) -> int:
        """The number of the last event."""
        return (self._last or 0) if self._reader is None else self._reader.number

    @property
    def question_ages(self) -> dict[str, float]:
        return {id: self._now() - at for id, at in self._asked.items() if at is not None}

    @property
    def is_running(self) -> bool:
        """True from an accepted prompt until its run has ended."""
        return self.work.running or self._is_expecting_run

    @property
    def is_busy(self) -> bool:
        """True if a stop would cut off a run or a question."""
        return self.work.is_busy or self._is_expecting_run

    @property
    def _is_expecting_run(self) -> bool:
        """True while an accepted prompt waits for its run. A prompt that was sent again may belong to an old run."""
        return self._expected_at is not None and self._now() - self._expected_at < ACCEPTED_SECONDS

    def expect_run(self, run_id: str) -> None:
        """Expect the run of an accepted prompt, unless it was announced already."""
        # Only recent runs are known.
        if run_id not in self._runs:
            self._expected_at = self._now()

    def follow_from(self, end: LogEnd, heard: int | None) -> None:
        """Start at `end`, where a worker begins, after what is already in the log; raises `OSError`.

        Events after the number `heard`, or after the last one that was read here, are counted.
        """
        self.close()
        self._count_missed(heard if self._last is None else self._last, end)
        self.end = end
        known = lines_since(self.folder, is_settled, end)
        self.work = read_open_work(known)
        self._asked = dict.fromkeys(self.work.questions)
        self._expected_at = None
        self._remember_run_id()
        self._reader = LogReader(self.folder, known[-1][0] if known else end.segment - 1, end)

    def read_and_detect_run_change(self, end: LogEnd) -> bool:
        """Read the new events; returns True if a run has begun or ended. After `OSError` it can be called again."""
        self.end = end
        assert self._reader is not None
        changed = False
        while lines := self._reader.read(end):
            if self._reader.lost:
                self.follow_from(end, None)
                return True
            self._counts.count("events", len(lines))
            for number, line in enumerate(lines, self._reader.number - len(lines) + 1):
                changed = self._process_and_detect_run_change(line, number) or changed
        if changed:
            self._expected_at = None
        return changed

    def close(self) -> None:
        """Close the log file; what was read from it stays available."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._last = reader.number
            reader.close()

    def _count_missed(self, before: int | None, end: LogEnd) -> None:
        """Count the events after this number, and the runs that ended among them."""
        if before is None:
            return
        reader = LogReader(self.folder, before, end)
        try:
            while lines := reader.read(end):
                self._counts.count("events", len(lines))
                self._counts.count("runs", sum(map(is_settled, lines)))
        finally:
            reader.close()

    def _process_and_detect_run_change(self, line: bytes, number: int) -> bool:
        head = self.work.track_line(line, number)
        if self._asked.keys() != self.work.questions.keys():
            self._asked = {id: self._asked.get(id, self._now()) for id in self.work.questions}
        if head.type == "tool_execution_end":
            # All tools, which nothing else here needs.
            from pigeon.tools.catalog import list_plan_tool_names

            if any(map(head.is_about_tool, list_plan_tool_names())):
                self._on_plan_written()
        if head.type == "agent_settled":
            self._counts.count("runs")
            return True
        if head.type == "agent_start":
            self._remember_run_id()
            return True
        return False

    def _remember_run_id(self) -> None:
        if self.work.run_id is not None:
            self._runs.append(self.work.run_id)


class Watcher:
    """A client; `after` is the number of the last event that it has, or None if it wants only new ones."""

    def __init__(
        self,
        conversation: ServedConversation,
        scope: Scope,
        after: int | None,
        wants: Callable[[bytes], bool] = lambda line: True,
    ) -> None:
        """`wants` returns whether the client is sent an event."""
        self.scope = scope
        self._conversation = conversation
        self._after = after
        self._asked_before: list[bytes] = []
        self._wants = wants
        self._bash_ids: dict[str, Json | Absent] = {}
        self._answers: deque[tuple[LogEnd, bytes]] = deque()
        self._unread = 0
        self._changed = asyncio.Event()
        self._pending = 0
        self._has_room = asyncio.Event()
        self.ended: WatchEnd | None = None

    def resolve_start(self) -> int:
        """Return the event after which it begins. A client that named none is also sent the open questions."""
        if self._after is None:
            self._after = self._conversation.log.number
            self._asked_before = list(self._conversation.work.questions.values())
        return self._after

    def remember_bash_id(self, id: str, asked_as: Json | Absent) -> None:
        """Show the output of this command under the id that the client gave it, if it gave one."""
        self._bash_ids[id] = asked_as
        if len(self._bash_ids) > MOST_BASH_IDS:
            del self._bash_ids[next(iter(self._bash_ids))]

    def send_answer(self, line: bytes, end: LogEnd) -> None:
        """Send an answer, after the events up to this end of the log."""
        self._unread += len(line)
        # One answer may be of any length.
        if self._answers and self._unread > MOST_UNREAD:
            self.end("too slow")
        if self.ended is None:
            self._answers.append((end, line))
        self._changed.set()

    async def wait_and_count_command(self, most: int) -> None:
        """Wait until fewer than `most` commands have unread answers, then count one more."""
        while self._pending >= most and self.ended is None:
            self._has_room.clear()
            await self._has_room.wait()
        self._pending += 1

    def end(self, why: WatchEnd) -> None:
        """Send nothing more to the client; `lines` ends."""
        if self.ended is None:
            self.ended = why
        self._answers.clear()
        self._has_room.set()
        self._changed.set()

    def notify_log_grown(self) -> None:
        self._changed.set()

    async def stream_lines(self) -> AsyncIterator[list[bytes]]:
        """The lines to send, without LF, until `end` is called."""
        conversation = self._conversation
        sent = self.resolve_start()
        if self._asked_before:
            yield self._asked_before
        reader = LogReader(conversation.log.folder, sent, conversation.log.end)
        try:
            while self.ended is None:
                if reader.lost:
                    snapshot, number = await conversation.make_snapshot()
                    yield [b'{"type":"gap","after":%d,"snapshot":%s}' % (sent, snapshot)]
                    reader.close()
                    reader = LogReader(conversation.log.folder, number, conversation.log.end)
                    if reader.lost:
                        # Even the start of the message in progress is no longer in the log.
                        reader.close()
                        reader = LogReader(conversation.log.folder, conversation.log.number, conversation.log.end)
                self._changed.clear()
                lines = reader.read(self._answers[0][0] if self._answers else conversation.log.end)
                if reader.lost:
                    continue
                sent = reader.number
                if lines:
                    if self._bash_ids:
                        lines = [self._restore_bash_id(line) for line in lines]
                    yield [line for line in lines if self._wants(line)]
                elif self._answers:
                    line = self._answers.popleft()[1]
                    self._unread -= len(line)
                    self._pending = max(0, self._pending - 1)
                    self._has_room.set()
                    yield [line]
                else:
                    await self._changed.wait()
        finally:
            reader.close()

    def _restore_bash_id(self, line: bytes) -> bytes:
        if head_of(line).type != "bash_execution_update":
            return line
        printed = codec.decode(line)
        if printed.get("id") not in self._bash_ids:
            return line
        id = self._bash_ids[printed.pop("id")]
        return codec.encode({"type": printed.pop("type"), **({} if isinstance(id, Absent) else {"id": id}), **printed})


class UnservedCalls:
    """Host tool calls while no client can answer them; a client that reconnects in time finds them still open."""

    def __init__(self) -> None:
        self._checks: dict[str, int] = {}

    def collect_failures(self, questions: Mapping[str, bytes], served: bool, most: int) -> list[dict[str, Json]]:
        """Called once a second: failures for the calls that had no client in `most` calls in a row."""
        calls = [] if served else [id for id, line in questions.items() if head_of(line).type == "host_tool_call"]
        self._checks = {id: self._checks.get(id, 0) + 1 for id in calls}
        result: Json = {"content": [{"type": "text", "text": UNSERVED.format(most)}]}
        late = [id for id, checks in self._checks.items() if checks > most]
        return [{"type": "host_tool_result", "id": id, "result": result, "isError": True} for id in late]


class ConversationClients:
    """The clients of one conversation; the runs that a client started continue without it."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self._unserved = UnservedCalls()

    @property
    def count(self) -> int:
        return len(self._watchers)

    def attach(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    def detach(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def notify_log_grown(self) -> None:
        for watcher in self._watchers:
            watcher.notify_log_grown()

    def end_all(self, why: WatchEnd) -> None:
        for watcher in self._watchers:
            watcher.end(why)

    def fail_unserved_calls(self, questions: Mapping[str, bytes], most: int) -> list[dict[str, Json]]:
        """Called once a second: failures for the host tool calls that no client could answer in `most` seconds."""
        served = any(has_needed_scope(watcher.scope, HostToolResult.required_scope) for watcher in self._watchers)
        return self._unserved.collect_failures(questions, served, most)
