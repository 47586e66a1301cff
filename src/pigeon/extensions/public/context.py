"""What a handler gets besides the event: the session and its host in their current state."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pigeon.extensions.public.results import ToolOutput, validate_record
from pigeon.extensions.public.session_objects import ConversationHandle, ModelsHandle, StateHandle, ToolsHandle
from pigeon.extensions.public.ui import Ui
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.extensions.runtime.session_access import SessionAccess
from pigeon.wire.answers import ContextUsage, SlashCommand
from pigeon.wire.events import ToolOutcome

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ToolRun
    from pigeon.extensions.adapters.session_port import ExecResult

_T = TypeVar("_T")


class Context:
    """The session and its host, for a handler to read and control."""

    def __init__(self, access: SessionAccess, timeout: PausableTimeout | None = None) -> None:
        self._access = access
        self.ui = Ui(access, timeout)
        self.session = ConversationHandle(access)
        self.tools = ToolsHandle(access)
        self.models = ModelsHandle(access)
        self.mode = access.binding.mode
        self.has_ui = self.mode == "rpc"

    @property
    def cwd(self) -> str:
        """The working directory of the session."""
        if self._access.binding.port is None:
            return self._access.binding.cwd
        return self._access.call(None, lambda port: port.conversation.facts().cwd)

    @property
    def project_trusted(self) -> bool:
        """True if the project's own files were loaded."""
        return self._access.binding.trusted

    def is_idle(self) -> bool:
        """True while no run is active."""
        return self._access.call(None, lambda port: port.control.is_idle())

    def has_pending_messages(self) -> bool:
        """True while messages are queued."""
        return self._access.call(None, lambda port: port.control.has_pending_messages())

    def abort(self) -> None:
        """Stop the run, without waiting for it."""
        self._access.call("control", lambda port: port.control.abort())

    def shutdown(self) -> None:
        """End the process, after the command in progress."""
        self._access.call("control", lambda port: port.control.shutdown())

    def context_usage(self) -> ContextUsage | None:
        """How full the model's window is."""
        return self._access.call(None, lambda port: port.control.context_usage())

    def system_prompt(self) -> str:
        """The system prompt of the next request."""
        return self._access.call(None, lambda port: port.control.system_prompt())

    def commands(self) -> list[SlashCommand]:
        """Returns all slash commands of the session."""
        return self._access.call(None, lambda port: port.control.commands())

    async def compact(self, instructions: str | None = None) -> None:
        """Summarize the history now; raises if that fails."""
        await self._access.run("control", lambda port: port.control.compact(instructions))

    async def exec(
        self, program: str, args: Sequence[str] = (), *, cwd: str | None = None, timeout: float | None = None
    ) -> ExecResult:
        """Run a program without a shell, for at most `timeout` seconds; a failing program raises nothing."""
        argv = [str(program), *(str(arg) for arg in args)]
        return await self._access.run("exec", lambda port: port.control.exec(argv, cwd, timeout))

    def state(self, key: str = "state") -> StateHandle:
        """A value that is kept in the session file, on the active branch."""
        return StateHandle(self.session, f"{self._access.name}:{key}")

    def wait(self, work: Awaitable[_T] | Coroutine[Any, Any, _T]) -> _T:
        """Wait for asynchronous work, such as a dialog, in a plain function."""
        if _is_in_async_code():
            raise RuntimeError("wait is for plain functions; in an async function use await")

        async def await_work() -> _T:
            return await work

        return asyncio.run_coroutine_threadsafe(await_work(), self._access.loop).result()


class CommandContext(Context):
    """The context of a slash command, which may also change the conversation."""

    async def wait_for_idle(self) -> None:
        """Wait until no run is active."""
        await self._access.run(None, lambda port: port.control.wait_until_idle())

    async def new_session(self, parent: str | None = None) -> bool:
        """Begin an empty conversation; returns False if that was vetoed."""
        return await self._access.run("sessions", lambda port: port.control.new_session(parent))

    async def switch_session(self, path: str) -> bool:
        """Open another conversation; returns False if that was vetoed."""
        return await self._access.run("sessions", lambda port: port.control.switch_session(str(path)))

    async def fork(self, entry_id: str) -> bool:
        """Continue before a user message in a new conversation; returns False if that was vetoed."""
        return await self._access.run("sessions", lambda port: port.control.fork(str(entry_id)))


class ToolContext(Context):
    """The context of a tool: its call, and a way to show progress."""

    def __init__(self, access: SessionAccess, timeout: PausableTimeout, run: ToolRun) -> None:
        super().__init__(access, timeout)
        self._run = run
        self._stopped = threading.Event()
        self.call_id = run.call_id

    @property
    def cancelled(self) -> bool:
        """True once the call should stop; plain functions check it, async ones are cancelled."""
        return self._stopped.is_set()

    def cancel(self) -> None:
        """Called when the call should stop."""
        self._stopped.set()

    async def update(self, progress: str | ToolOutput) -> None:
        """Show the host all progress so far."""
        outcome = outcome_of(progress)
        await self._access.bridge.run(lambda: self._run.update(outcome))


def _is_in_async_code() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def outcome_of(result: Any) -> ToolOutcome:
    """A tool's return value in the form of the loop; raises `TypeError` for an invalid result."""
    if result is None:
        result = ToolOutput("Done.")
    elif isinstance(result, str):
        result = ToolOutput(result)
    if isinstance(result, ToolOutcome):
        return validate_record(result)
    if not isinstance(result, ToolOutput):
        raise TypeError(f"a tool must return text or ToolOutput, not {type(result).__name__}")
    outcome = ToolOutcome(content=result.content(), details=result.details)
    if result.terminate:
        outcome.terminate = True
    return validate_record(outcome)
