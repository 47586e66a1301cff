"""A chat bot: each user has a conversation of their own, and is asked before anything is changed.

    python examples/bot.py --model demo

Then type lines like `ann: list the files` and `ann: write hello to notes.txt`, and `ann: yes` when the bot asks. In a
real bot `received` is called by the webhook of the chat service, and `say` posts to it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable

import pigeon

TOOLS = ["read", "ls", "grep", "find", "write", "edit"]  # no bash: users of a chat get no shell on this machine
RULES = {"ask": ["write", "edit"]}
YES = {"y", "yes", "ok"}


class Chat:
    """The conversation with one user: messages are answered one after another."""

    def __init__(self, user: str, say: Callable[[str], None], model: str, folder: str) -> None:
        self._user = user
        self._say = say
        self._model = model
        self._folder = folder
        self._messages: asyncio.Queue[str | None] = asyncio.Queue()
        self._question: asyncio.Future[bool] | None = None
        self._task = asyncio.create_task(self._talk())

    def received(self, text: str) -> None:
        """A message of the user: the answer to a question if there is one, else something to do."""
        if self._question is not None and not self._question.done():
            self._question.set_result(text.strip().lower() in YES)
        else:
            self._messages.put_nowait(text)

    async def close(self) -> None:
        """Finish what the user has asked for; a question that is open gets a no."""
        self._messages.put_nowait(None)
        if self._question is not None and not self._question.done():
            self._question.set_result(False)
        await self._task

    async def _talk(self) -> None:
        # The id makes the conversation survive the bot: after a restart the same user goes on where they were.
        async with pigeon.Agent(
            model=self._model,
            cwd=self._folder,
            session_id=f"chat-{self._user}",
            builtin_tools=TOOLS,
            permissions=RULES,
            on_permission=self._ask,
        ) as agent:
            while (text := await self._messages.get()) is not None:
                # A limit for each message, so that one of them cannot spend the budget of a month.
                result = await agent.run(text, limits=pigeon.Limits(turns=30, cost=0.50))
                # After a no of the user the run ends as `denied`, and the model has said what it makes of that.
                answered = result.ended in ("done", "denied")
                self._say(result.text if answered else f"That did not work: {result.error or result.ended}")

    async def _ask(self, request: pigeon.PermissionRequest) -> bool:
        """Ask the user; the run waits. If the run is aborted meanwhile, this is cancelled."""
        self._question = asyncio.get_running_loop().create_future()
        self._say(f"May I use {request.tool_name}? {request.arguments}\n{request.diff or ''}".strip())
        return await self._question


async def main() -> None:
    """Read `user: text` lines until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--folder", default=".")
    options = parser.parse_args()
    chats: dict[str, Chat] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        user, colon, text = line.strip().partition(": ")
        if not colon or not user.isalnum():
            print("(write `name: message`)", flush=True)
            continue
        if user not in chats:
            chats[user] = Chat(user, lambda said, to=user: print(f"to {to}: {said}", flush=True), **vars(options))
        chats[user].received(text)
    await asyncio.gather(*(chat.close() for chat in chats.values()))


asyncio.run(main())
