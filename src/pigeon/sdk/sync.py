"""Conversations for code without an event loop: scripts, notebooks, a REPL.

Each has a thread with its own loop, in which the async conversation lives. So it also works where a loop is already
running, as in a notebook. Ctrl-C while a run is waited for aborts the run and is raised once that is over. Callables of
the program (tools, permissions, dialogs) are called in that thread.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, overload

from pigeon.sdk.agent import Agent, AgentChoices
from pigeon.sdk.commands import SyncCommandMethods
from pigeon.sdk.conversation import Conversation
from pigeon.sdk.errors import ConversationClosed
from pigeon.sdk.host_calls import AnyTool, OnDialog, OnPermission
from pigeon.sdk.images import ImageLike
from pigeon.sdk.remote.client import Client
from pigeon.sdk.results import ConversationEvent, OutputT, Result
from pigeon.wire.answers import Accepted, Welcome
from pigeon.wire.commands import Command, StreamingBehavior
from pigeon.wire.steering import Limits

if TYPE_CHECKING:
    from typing import Unpack

    from pigeon.workspaces.workspace import Workspace

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Init = Callable[..., None]
_Self = TypeVar("_Self", bound="SyncConversation")


class LoopThread:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pigeon-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run_and_wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the thread and wait for it; an interrupt here cancels it there, and waits until it has
        ended."""
        try:
            self.require_other_thread()
        except RuntimeError:
            work.close()
            raise
        if self._loop.is_closed():
            return _run_without_loop(work)
        if not self.is_running:
            work.close()
            raise ConversationClosed("The conversation was opened in another process; after a fork only that has it")
        done: Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except BaseException:
            if not done.done():
                self._cancel_and_wait(done)
            raise

    @property
    def is_running(self) -> bool:
        """False once it was stopped, and in a process that was forked from that of the thread."""
        return self._thread.is_alive()

    def require_other_thread(self) -> None:
        """Raise `RuntimeError` in the thread itself, which would wait for its own end."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a tool or callback cannot wait for its own conversation; make it async")

    def _cancel_and_wait(self, done: Future[_T]) -> None:
        done.cancel()
        # The future is cancelled at once, but its task takes a moment: everything it waits for is ended first.
        self.run_and_wait(_wait_for_cancelled_tasks())

    def stop(self) -> None:
        """End the loop and the thread."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(_shut_down(self._loop), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _run_without_loop(work: Coroutine[Any, Any, _T]) -> _T:
    """After the loop has ended, nothing needs waiting: reading what was queued, or refusing what is too late."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast("_T", end.value)
    finally:
        work.close()
    raise ConversationClosed


async def _wait_for_cancelled_tasks() -> None:
    """Wait for tasks that are being cancelled."""
    cancelling = [task for task in asyncio.all_tasks() if task.cancelling()]
    if cancelling:
        await asyncio.wait(cancelling)


async def _shut_down(loop: asyncio.AbstractEventLoop) -> None:
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class SyncConversation(SyncCommandMethods):
    """A conversation whose methods wait; a context manager."""

    def __init__(self, make: Callable[[], Conversation]) -> None:
        self._make = make
        self._thread: LoopThread | None = None
        self._conversation: Conversation | None = None

    def open(self) -> None:
        """Start or reach the agent; `with` does it."""
        if self._thread is not None:
            raise ConversationClosed("The conversation is open already")
        conversation = self._make()
        thread = LoopThread()
        try:
            thread.run_and_wait(conversation.open())
        except BaseException:
            thread.stop()
            raise
        self._thread, self._conversation = thread, conversation
        # A program that ends without closing would wait for a thread that no longer exists.
        atexit.register(self.close)

    def close(self) -> None:
        """Stop what is running, and end the agent; further calls change nothing."""
        if self._thread is not None:
            self._thread.require_other_thread()
        thread, self._thread = self._thread, None
        conversation, self._conversation = self._conversation, None
        atexit.unregister(self.close)
        if thread is not None and conversation is not None and thread.is_running:
            try:
                thread.run_and_wait(conversation.close())
            finally:
                thread.stop()

    def __enter__(self: _Self) -> _Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, command: Command) -> Any:
        """Send a command as a record; returns its answer, raises a `Refusal` if it is refused."""
        return self._run_and_wait(lambda conversation: conversation.send(command))

    def events(self) -> Iterator[ConversationEvent]:
        """Everything that the agent sends from this call on, for as long as the conversation is open."""
        thread, conversation = self._require_open()

        async def subscribe() -> Any:
            return conversation.events()

        reader = thread.run_and_wait(subscribe())

        def iterate() -> Iterator[ConversationEvent]:
            while (event := thread.run_and_wait(_next(reader))) is not None:
                yield event

        return iterate()

    def prompt(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = (),
        limits: Limits | None = None,
        output: Any = None,
        message_id: str | None = None,
        streaming_behavior: StreamingBehavior | None = None,
        every_delta: bool = False,
    ) -> Iterator[ConversationEvent]:
        """Prompt, and iterate over the events of the run; leaving the iteration early aborts the run."""
        thread, conversation = self._require_open()
        events = conversation.prompt(
            text,
            images=images,
            limits=limits,
            output=output,
            message_id=message_id,
            streaming_behavior=streaming_behavior,
            every_delta=every_delta,
        )
        try:
            while (event := thread.run_and_wait(_next(events))) is not None:
                yield event
        finally:
            # A fork of the process has the iterator too, and nothing to close.
            with suppress(ConversationClosed):
                thread.run_and_wait(events.aclose())

    @overload
    def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = ...,
        limits: Limits | None = ...,
        output: None = ...,
        message_id: str | None = ...,
        streaming_behavior: StreamingBehavior | None = ...,
    ) -> Result[None]: ...

    @overload
    def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = ...,
        limits: Limits | None = ...,
        output: type[OutputT],
        message_id: str | None = ...,
        streaming_behavior: StreamingBehavior | None = ...,
    ) -> Result[OutputT]: ...

    @overload
    def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = ...,
        limits: Limits | None = ...,
        output: Any,
        message_id: str | None = ...,
        streaming_behavior: StreamingBehavior | None = ...,
    ) -> Result[Any]: ...

    def run(
        self,
        text: str,
        *,
        images: Sequence[ImageLike] = (),
        limits: Limits | None = None,
        output: Any = None,
        message_id: str | None = None,
        streaming_behavior: StreamingBehavior | None = None,
    ) -> Result[Any]:
        """Prompt, wait for the end of the run, and return how it ended."""
        return self._run_and_wait(
            lambda one: one.run(
                text,
                images=images,
                limits=limits,
                output=output,
                message_id=message_id,
                streaming_behavior=streaming_behavior,
            )
        )

    def steer(self, text: str, *, images: Sequence[ImageLike] = (), message_id: str | None = None) -> Accepted:
        """Send a message to the model at the next break in the running turn."""
        return self._run_and_wait(lambda one: one.steer(text, images=images, message_id=message_id))

    def follow_up(self, text: str, *, images: Sequence[ImageLike] = (), message_id: str | None = None) -> Accepted:
        """Send a message to the model when it would otherwise stop."""
        return self._run_and_wait(lambda one: one.follow_up(text, images=images, message_id=message_id))

    def set_tools(self, tools: Sequence[AnyTool]) -> None:
        """Give the model these functions instead of those it had, from its next request on."""
        self._run_and_wait(lambda one: one.set_tools(tools))

    def _require_open(self) -> tuple[LoopThread, Conversation]:
        if self._thread is None or self._conversation is None:
            raise ConversationClosed("The conversation is closed; open it with `with`")
        return self._thread, self._conversation

    def _run_and_wait(self, work: Callable[[Conversation], Coroutine[Any, Any, _T]]) -> _T:
        thread, conversation = self._require_open()
        return thread.run_and_wait(work(conversation))


async def _next(events: Any) -> ConversationEvent | None:
    """The next event, or None after the last: `StopAsyncIteration` cannot leave a coroutine."""
    async for event in events:
        return cast("ConversationEvent", event)
    return None


def _copy_signature(source: Callable[_P, Conversation]) -> Callable[[_Init], Callable[Concatenate[Any, _P], None]]:
    """Give a constructor the signature of another class, for type checkers and for `help`."""

    def add_signature(init: _Init) -> Callable[Concatenate[Any, _P], None]:
        return functools.wraps(cast("Any", source).__init__)(init)

    return add_signature


class SyncAgent(SyncConversation):
    """`Agent` for code without an event loop; it takes the same arguments.

    Example:
        import pigeon

        with pigeon.SyncAgent(model="demo") as agent:
            for event in agent.prompt("list the files"):
                if isinstance(event, pigeon.TextDelta):
                    print(event.delta, end="")
            print(agent.get_session_stats().tool_calls, "tool calls")
    """

    @_copy_signature(Agent)
    def __init__(self, **arguments: Any) -> None:
        super().__init__(lambda: Agent(**arguments))

    @property
    def warnings(self) -> list[str]:
        """Problems with settings and files that did not keep the agent from starting."""
        return cast("Agent", self._require_open()[1]).warnings


class SyncClient(SyncConversation):
    """`Client` for code without an event loop; it takes the same arguments.

    Example:
        import pigeon

        with pigeon.SyncClient(command=["pigeon", "--mode", "rpc"], model="demo") as client:
            print(client.run("list the files").text)
    """

    @_copy_signature(Client)
    def __init__(self, *given: Any, **arguments: Any) -> None:
        super().__init__(lambda: Client(*given, **arguments))

    @property
    def welcome(self) -> Welcome | None:
        """Pigeon's answer to `hello`: its version, dialect and features; None for other agents."""
        return cast("Client", self._require_open()[1]).welcome

    @property
    def pid(self) -> int | None:
        """The id of the agent's process; None behind a socket."""
        return cast("Client", self._require_open()[1]).pid

    @property
    def url(self) -> str | None:
        """The address of the conversation, once `pigeon serve` knows it; None without a server."""
        return cast("Client", self._require_open()[1]).url

    def restart(self) -> None:
        """Restart the agent, after its death or at any other time, and continue its session if that is on disk."""
        self._run_and_wait(lambda one: cast("Client", one).restart())


class AgentArguments(AgentChoices, total=False):
    """The arguments of `Agent` except for its limits."""

    model: str | None
    cwd: str | os.PathLike[str] | None
    tools: Sequence[AnyTool]
    permissions: str | Mapping[str, Any] | None
    on_permission: OnPermission | None
    on_dialog: OnDialog | None
    unattended: bool
    session: str | os.PathLike[str] | None
    agent_dir: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    workspace: str | Workspace | None


@overload
def run_sync(
    text: str,
    *,
    images: Sequence[ImageLike] = ...,
    limits: Limits | None = ...,
    output: None = ...,
    **options: Unpack[AgentArguments],
) -> Result[None]: ...


@overload
def run_sync(
    text: str,
    *,
    images: Sequence[ImageLike] = ...,
    limits: Limits | None = ...,
    output: type[OutputT],
    **options: Unpack[AgentArguments],
) -> Result[OutputT]: ...


@overload
def run_sync(
    text: str,
    *,
    images: Sequence[ImageLike] = ...,
    limits: Limits | None = ...,
    output: Any,
    **options: Unpack[AgentArguments],
) -> Result[Any]: ...


def run_sync(
    text: str,
    *,
    images: Sequence[ImageLike] = (),
    limits: Limits | None = None,
    output: Any = None,
    **options: Unpack[AgentArguments],
) -> Result[Any]:
    """Start an agent, run one prompt, end the agent, and return the result; the options are those of `Agent`.

    Example:
        import pigeon
        from pigeon.testing import scripted, value

        print(pigeon.run_sync("list the files", model="demo").text)
        with scripted(value(["a.py", "b.py"])) as model:
            result = pigeon.run_sync("Which files are programs?", model=model, output=list[str])
        assert result.output == ["a.py", "b.py"]
    """
    with SyncAgent(**options) as agent:
        return agent.run(text, images=images, limits=limits, output=output)
