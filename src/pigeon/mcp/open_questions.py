"""Questions of tool servers that wait for their answers; a server may withdraw one meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pigeon.mcp.connector.records import (
    Answer,
    Question,
    QuestionAsked,
    QuestionWithdrawn,
    SignInQuestion,
    StoredQuestion,
)
from pigeon.mcp.questions import Questions
from pigeon.mcp.server_config import ServerConfig
from pigeon.mcp.server_settings import ServerSettings


class OpenQuestions:
    """Finds the answers in the background, from the person or from what is stored. `send` gets each with its id."""

    def __init__(
        self, questions: Questions, settings: ServerSettings, unattended: bool, send: Callable[[int, Answer], None]
    ) -> None:
        self._questions = questions
        self._settings = settings
        self._unattended = unattended
        self._send = send
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def on_record(self, config: ServerConfig, record: QuestionAsked | QuestionWithdrawn) -> None:
        """Begin to answer a question of the server with this configuration, or withdraw one."""
        id = record.id
        if isinstance(record, QuestionWithdrawn):
            task = self._tasks.pop(id, None)
            if task is not None:
                task.cancel()
            return
        task = self._tasks[id] = asyncio.ensure_future(self._answer(config, record))
        task.add_done_callback(lambda _: self._tasks.pop(id, None))

    def cancel_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _answer(self, config: ServerConfig, record: QuestionAsked) -> None:
        answer: Answer = None
        try:
            answer = await self._find_answer(config, record.question)
        finally:
            self._send(record.id, answer)

    async def _find_answer(self, config: ServerConfig, question: Question) -> Answer:
        if isinstance(question, StoredQuestion):
            return self._settings.read_sign_in(config)
        if self._unattended:
            return None
        if isinstance(question, SignInQuestion):
            return await self._questions.ask_sign_in(config.name, question)
        return await self._questions.ask_elicitation(config.name, question)
