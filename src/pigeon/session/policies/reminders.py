"""Reminders: a run that would end with open tasks in the plan continues, at most `MOST_REMINDERS` times between two
messages of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pigeon.agent.interfaces import Publish, Spoken
from pigeon.session.context.transcript import Transcript
from pigeon.session.policies.policy import CompletedTurn, RunPolicy
from pigeon.session.todos import Todos
from pigeon.wire.events import TodoReminder
from pigeon.wire.messages import CustomMessage
from pigeon.wire.steering import TodoTask

MOST_REMINDERS = 3
CUSTOM_TYPE = "todo-reminder"


class Reminders(RunPolicy):
    """Reminds the model of open tasks when it stops."""

    def __init__(self, todos: Todos, transcript: Transcript, publish: Publish, now: Callable[[], int]) -> None:
        self._todos = todos
        self._transcript = transcript
        self._publish = publish
        self._now = now
        self._given = 0
        self._given_after: str | None = None

    async def after_turn(self, turn: CompletedTurn) -> Sequence[Spoken]:
        """The reminder, which is also announced; empty if the run may stop here."""
        if not turn.ends:
            return ()
        left = self._todos.open_tasks() if turn.has_stopped_by_itself else []
        asked = self._transcript.find_last_user_entry()
        if asked != self._given_after:
            self._given, self._given_after = 0, asked
        if not left or self._given >= MOST_REMINDERS:
            return ()
        self._given += 1
        await self._publish(TodoReminder(todos=left, attempt=self._given, max_attempts=MOST_REMINDERS))
        text = reminder_text(left, self._given, MOST_REMINDERS)
        return [CustomMessage(custom_type=CUSTOM_TYPE, content=text, display=False, timestamp=self._now())]


def reminder_text(left: list[TodoTask], attempt: int, most: int) -> str:
    """The text of the message that continues the run."""
    listed = "\n".join(f"- {task.content} ({task.status.replace('_', ' ')})" for task in left)
    return (
        f"<reminder>\nYou stopped, but the plan still has open tasks (reminder {attempt} of {most}):\n{listed}\n"
        "Go on with them. If one is done already, or no longer makes sense, mark it so in the plan. If you cannot go "
        "on without the user, say what you need.\n</reminder>"
    )
