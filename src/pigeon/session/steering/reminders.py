"""A model that stops although its plan is not done is told so, a few times for each thing that the user says."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.agent.interfaces import Publish, Spoken
from pigeon.session.steering.todos import Todos
from pigeon.wire.content import ToolCall
from pigeon.wire.events import MessageEnd, Outbound, TodoReminder
from pigeon.wire.messages import AssistantMessage, CustomMessage, UserMessage
from pigeon.wire.todos import TodoTask

MOST_REMINDERS = 3
CUSTOM_TYPE = "todo-reminder"


class Reminders:
    """Counts from one message of the user to the next."""

    def __init__(self, todos: Todos, publish: Publish, now: Callable[[], int]) -> None:
        self._todos = todos
        self._publish = publish
        self._now = now
        self._given = 0
        self.enabled = True
        self.most = MOST_REMINDERS

    def notes(self, event: Outbound) -> None:
        """Something was said; if the user said it, counting begins anew."""
        if isinstance(event, MessageEnd) and isinstance(event.message, UserMessage):
            self._given = 0

    async def adds(self, answer: AssistantMessage) -> list[Spoken]:
        """The reminder to go on with, announced; nothing if this is a good place to stop."""
        left = self._todos.open_tasks() if self.enabled and is_final(answer) else []
        if not left or self._given >= self.most:
            return []
        self._given += 1
        await self._publish(TodoReminder(todos=left, attempt=self._given, max_attempts=self.most))
        text = reminder_text(left, self._given, self.most)
        return [CustomMessage(custom_type=CUSTOM_TYPE, content=text, display=False, timestamp=self._now())]


def is_final(answer: AssistantMessage) -> bool:
    """True if the model stopped by itself and called no tool."""
    if answer.stop_reason in ("error", "aborted"):
        return False
    return not any(isinstance(block, ToolCall) for block in answer.content)


def reminder_text(left: list[TodoTask], attempt: int, most: int) -> str:
    """What the model is told."""
    listed = "\n".join(f"- {task.content} ({task.status.replace('_', ' ')})" for task in left)
    return (
        f"<reminder>\nYou stopped, but the plan still has open tasks (reminder {attempt} of {most}):\n{listed}\n"
        "Go on with them. If one is done already, or no longer makes sense, mark it so in the plan. If you cannot go "
        "on without the user, say what you need.\n</reminder>"
    )
