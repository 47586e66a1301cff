"""The lines of a served conversation over successive connections; none is missing or repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from pigeon.sdk.remote.line_connections import NotReached
from pigeon.sdk.remote.sent_lines import FILTER_ID, LineHead, SentLines, decode_head, remove_our_ids
from pigeon.wire import codec
from pigeon.wire.commands import NAMES, SetEventFilter
from pigeon.wire.event_filter import TypeFilter

GAP = "The connection was lost for so long that the events of this run are gone; get_messages has what came of it"
QUESTIONS = frozenset(("extension_ui_request", "host_tool_call", "host_tool_cancel"))


class _Accepted(Struct, rename="camel"):
    disposition: str = ""
    run_id: str = ""


class _Snapshot(Struct, rename="camel"):
    seq: int = 0
    run_id: str | None = None


class HeldEvents:
    """Events that wait for the answer to a message which was sent again.

    The run of the message may have begun, and even ended, before its answer comes a second time. Clients expect the
    answer before the run, so what comes meanwhile is held, and the answer is put before the first event of its run.
    """

    def __init__(self) -> None:
        self._waiting: set[bytes] = set()
        self._lines: list[tuple[bytes, str, str]] = []

    @property
    def is_holding(self) -> bool:
        return bool(self._waiting)

    def hold_for_answer(self, id: bytes) -> None:
        """Hold events until this command is answered."""
        self._waiting.add(id)

    def is_waiting_for(self, id: bytes) -> bool:
        return id in self._waiting

    def has_end_of(self, run_id: str) -> bool:
        """Whether the end of a run is among the held events."""
        return any(one[1:] == (run_id, "agent_settled") for one in self._lines)

    def hold_event(self, line: bytes, run_id: str, kind: str) -> None:
        self._lines.append((line, run_id, kind))

    def insert_answer(self, id: bytes, answer: bytes, run_id: str) -> list[bytes]:
        """Insert an answer at its place; returns the lines that need not wait any more."""
        self._waiting.discard(id)
        numbers = (number for number, one in enumerate(self._lines) if run_id and one[1] == run_id)
        self._lines.insert(next(numbers, len(self._lines)), (answer, "", ""))
        return [] if self._waiting else self.release_all()

    def release_all(self) -> list[bytes]:
        lines, self._lines = self._lines, []
        self._waiting.clear()
        return [line for line, _, _ in lines]


class ReceivedLines:
    """Passes the lines of a server to `forward`: new ones only, in the order that the client expects."""

    def __init__(self, sent: SentLines, forward: Callable[[bytes], None]) -> None:
        self._sent = sent
        self._forward = forward
        self._last = 0
        self._runs: dict[str, None] = {}
        self._held = HeldEvents()
        self._filter = TypeFilter()

    @property
    def last_number(self) -> int:
        """The number of the last received event, after which the next connection begins."""
        return self._last

    def expect_events_after(self, number: int) -> None:
        """Expect the events after this number; called before the first line."""
        self._last = number

    def on_line(self, line: bytes) -> None:
        """Forward a line that is new; raises `NotReached` if it says that the conversation is gone."""
        try:
            line = remove_our_ids(line)
            head = decode_head(line)
        except msgspec.DecodeError:
            self._forward(line)
            return
        if head.type == "response" and head.command == "attach":
            # It comes a second time when the conversation is gone.
            raise NotReached(str(head.error), True)
        if head.type == "response" and head.id == FILTER_ID:
            return
        if head.type == "response":
            self._on_answer(line, head)
        elif head.type == "gap":
            self._on_gap(line, head)
        elif self._is_new(head):
            self._on_event(line, head)

    def on_connection_lost(self, refused_line: bool) -> None:
        """Answer commands that will not be sent again, and prepare for the answers to messages that will.

        `refused_line` means that the server closed the connection because a line was too long.
        """
        for answer in self._sent.give_up_too_long(refused_line):
            self._on_answer(answer, decode_head(answer))
        messages, failures = self._sent.resend_or_fail()
        for id in messages:
            self._held.hold_for_answer(id)
        for answer in failures:
            self._forward(answer)

    def _is_new(self, head: LineHead) -> bool:
        """False for an event that came before; questions are repeated on purpose."""
        if head.seq <= self._last and head.seq and head.type not in QUESTIONS:
            return False
        self._last = max(self._last, head.seq)
        return True

    def _on_answer(self, line: bytes, head: LineHead) -> None:
        id = codec.encode(head.id)
        sent = self._sent.pop_command(id)
        if sent is not None and sent.name == NAMES[SetEventFilter] and head.success:
            self._use_filter(cast("SetEventFilter", codec.command_of(codec.decode(sent.line))))
        accepted = _decode_raw(head.data, _Accepted) if sent is not None and sent.is_message else _Accepted()
        if accepted.run_id and accepted.disposition == "started" and not self._held.has_end_of(accepted.run_id):
            self._runs[accepted.run_id] = None
        if self._held.is_waiting_for(id):
            for held in self._held.insert_answer(id, line, accepted.run_id):
                self._forward(held)
        else:
            self._forward(line)

    def _use_filter(self, accepted: SetEventFilter) -> None:
        """Filter here, too: a new connection is sent everything until its server has the filter again."""
        self._filter = TypeFilter(accepted)
        self._sent.set_filter(None if self._filter.is_open else accepted)

    def _on_event(self, line: bytes, head: LineHead) -> None:
        if head.type == "agent_start" and head.run_id:
            self._runs[head.run_id] = None
        elif head.type == "agent_settled":
            self._runs.pop(head.run_id, None)
            # No earlier question is open any more.
            self._sent.close_all_questions()
        elif head.type == "permission_resolved":
            self._sent.close_question(str(head.id))
        elif head.target_id and self._sent.close_question(head.target_id):
            # An answered question is closed for all clients; the client that answered has closed it itself.
            return
        if not self._filter.should_send_line(line):
            return
        if not self._held.is_holding:
            self._forward(line)
        elif head.type in QUESTIONS:
            # Held lines wait for an answer, which may itself wait for the answer to this one.
            for held in self._held.release_all():
                self._forward(held)
            self._forward(line)
        else:
            self._held.hold_event(line, head.run_id, head.type)

    def _on_gap(self, line: bytes, head: LineHead) -> None:
        """Handle a gap in the log: work that has ended meanwhile ends here too."""
        snapshot = _decode_raw(head.snapshot, _Snapshot)
        self._last = snapshot.seq
        for held in self._held.release_all():
            self._forward(held)
        self._forward(line)
        ended = [run_id for run_id in self._runs if run_id != snapshot.run_id]
        for run_id in ended:
            del self._runs[run_id]
            end = {"type": "agent_settled", "aborted": False, "reason": "error", "errorMessage": GAP}
            self._forward(codec.encode({**end, "runId": run_id}))


def _decode_raw(raw: msgspec.Raw, kind: type[_Accepted] | type[_Snapshot]) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return kind()
