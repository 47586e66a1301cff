"""Files and commands of the host: what an editor has open is read and written there, and commands run in its terminals.

Tools ask through `HostAccess` (`agent/interfaces.py`), after rules and paths have been checked as for the disk. A
request is an event, its answer a command with the same id. Every request ends, with the host's answer or with an error
that explains its absence. If the host does not answer about a file in time, only that call fails; a command that has to
stop gets a moment to report its output.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence

from pigeon.agent.interfaces import HostCommandEnd, HostRefused, ToolRun
from pigeon.wire.base import ABSENT, Absent, Json, value_or_default
from pigeon.wire.commands import HostServiceResult, SetHostServices
from pigeon.wire.commands.services import HostServicesState
from pigeon.wire.errors import Aborted, Refusal, ToolFailed
from pigeon.wire.events import (
    FileChanged,
    HostCommandRun,
    HostFileRead,
    HostFileWrite,
    HostServiceCancel,
    Outbound,
    WorkspaceRequest,
)

FILE_SECONDS = 30.0
STOP_SECONDS = 5.0
LONGEST_SHOWN = 1 << 20
GONE = "The host is gone, and it had taken over {}. Nothing was done."
HostRequest = HostFileRead | HostFileWrite | HostCommandRun | WorkspaceRequest
NO_ANSWER = "The host did not answer within {:g} s ({} {}). It may be done or not: look before you try again."


class CommandTimedOut(Exception):
    """The time of a command was up; the text is what it has printed."""


class HostServices:
    """What one host does for the tools of a session.

    `cwd` is the folder of the conversation now, `variables` are those of the process, `walled` returns whether commands
    must stay behind our wall: then the host's terminals are not used, whatever it offers. `steered` returns whether
    commands behind that wall could redirect a path: then it is not passed to the host, which is outside and would
    follow it after the check. `has_workspace` returns whether the host is the workspace itself.
    """

    def __init__(
        self,
        post: Callable[[Outbound], None],
        new_id: Callable[[], str],
        cwd: Callable[[], str],
        variables: Mapping[str, str],
        walled: Callable[[], bool],
        steered: Callable[[str], bool],
        has_workspace: Callable[[], bool] = lambda: False,
    ) -> None:
        self._has_workspace = has_workspace
        self._post = post
        self._new_id = new_id
        self._cwd = cwd
        self._variables = variables
        self._walled = walled
        self._steered = steered
        self._offered = HostServicesState()
        self._roots: list[str] = []
        self._open: dict[str, asyncio.Future[HostServiceResult]] = {}
        self._gone = False

    def set_services(self, asked: SetHostServices) -> HostServicesState:
        """Use the host's services from the next call on; raises `Refusal` for folders that are not absolute."""
        roots = value_or_default(asked.roots, [])
        for root in roots:
            if not os.path.isabs(root) or "\0" in root:
                raise Refusal(f'Field "roots" must have absolute paths, not "{root}"')
        self._roots = [os.path.normpath(root) for root in roots]
        self._offered = HostServicesState(
            read_files=asked.read_files,
            write_files=asked.write_files,
            run_commands=asked.run_commands,
            tell_changes=asked.tell_changes,
            gives_bytes=asked.gives_bytes or ABSENT,
            gives_stat=asked.gives_stat or ABSENT,
            gives_list=asked.gives_list or ABSENT,
            gives_search=asked.gives_search or ABSENT,
            roots=self._roots,
        )
        return self.state()

    @property
    def offered(self) -> HostServicesState:
        """What the host has said that it does."""
        return self._offered

    def state(self) -> HostServicesState:
        offered = self._offered
        if self._has_workspace():
            return offered
        has_files = not all(map(self._steered, self._folders()))
        return HostServicesState(
            read_files=offered.read_files and has_files,
            write_files=offered.write_files and has_files,
            run_commands=self.runs_commands,
            tell_changes=offered.tell_changes,
            roots=self._roots,
        )

    # Used by tools

    @property
    def runs_commands(self) -> bool:
        """True if commands run at the host; the one place where that is decided."""
        return self._offered.run_commands and not self._walled()

    @property
    def wants_changes(self) -> bool:
        """True if the host wants reports of changed files."""
        return self._offered.tell_changes

    async def ask(self, request: HostRequest, seconds: float | None = FILE_SECONDS) -> HostServiceResult:
        """The answer about a workspace that is the host's; raises `OSError` with its reason, and `ToolFailed`."""
        waiting = self._send_request(request)
        try:
            result = await asyncio.wait_for(asyncio.shield(waiting), seconds)
        except (TimeoutError, asyncio.CancelledError) as reason:
            self._cancel_request(request.id)
            if isinstance(reason, TimeoutError) and isinstance(request, HostCommandRun):
                # A command that has to stop gets a moment to report its output.
                done, _ = await asyncio.wait({waiting}, timeout=STOP_SECONDS)
                if done:
                    raise CommandTimedOut(value_or_default(waiting.result().output, "")) from None
                raise CommandTimedOut("") from None
            if isinstance(reason, TimeoutError):
                raise OSError(NO_ANSWER.format(seconds, request.__struct_config__.tag, "")) from None
            raise
        finally:
            self._open.pop(request.id, None)
        if not isinstance(result.error, Absent):
            raise OSError(result.error)
        return result

    def new_request_id(self) -> str:
        return self._new_id()

    def find_host_path_to_read(self, place: str) -> str | None:
        """The path under which to request a file from the host, or None if it is read from the disk."""
        return self._host_path_of(place) if self._offered.read_files else None

    def find_host_path_to_write(self, place: str) -> str | None:
        """The path under which the host writes a file, or None if it is written to the disk."""
        return self._host_path_of(place) if self._offered.write_files else None

    def _host_path_of(self, place: str) -> str | None:
        """Returns the host's name for a file of the workspace, which is the host's to read and write."""
        for root in self._folders():
            real = os.path.realpath(root)
            if place.startswith(real.rstrip("/") + "/"):
                path = root.rstrip("/") + place[len(real.rstrip("/")) :]
                return None if self._steered(path) else path
        return None

    def _folders(self) -> list[str]:
        return self._roots or [self._cwd()]

    async def read(self, run: ToolRun, path: str) -> str:
        """The text of a file; raises `HostRefused` with the host's reason, and `ToolFailed`."""
        request = HostFileRead(id=self._new_id(), tool_call_id=run.call_id, path=path)
        result = await self._request_file(run, request, "reading")
        if isinstance(result.content, Absent):
            raise HostRefused("the host gave no content")
        return result.content

    async def write(self, run: ToolRun, path: str, content: str) -> None:
        """Write a file; raises `HostRefused` with the host's reason, and `ToolFailed`."""
        request = HostFileWrite(id=self._new_id(), tool_call_id=run.call_id, path=path, content=content)
        await self._request_file(run, request, "writing")

    def report_change(self, run: ToolRun, path: str, old: str | None, new: str) -> None:
        """Report the change of a file by a tool; texts that are too long are left out."""
        shown = len(new) <= LONGEST_SHOWN and len(old or "") <= LONGEST_SHOWN
        self._post(
            FileChanged(
                tool_call_id=run.call_id,
                path=path,
                created=old is None,
                old_text=ABSENT if old is None or not shown else old,
                new_text=new if shown else ABSENT,
            )
        )

    async def run(
        self, run: ToolRun, argv: Sequence[str], cwd: str, environment: Mapping[str, str], timeout: float | None
    ) -> HostCommandEnd:
        """Run a command to its end, or until it must stop; raises `ToolFailed`."""
        request = HostCommandRun(
            id=self._new_id(),
            tool_call_id=run.call_id,
            command=list(argv),
            cwd=cwd,
            env=_environment_difference(self._variables, environment),
        )
        waiting = self._send_request(request)
        cause: str | None = None
        try:
            result = await run.scope.wait(asyncio.wait_for(asyncio.shield(waiting), timeout))
        except (TimeoutError, Aborted) as reason:
            cause = "cancelled" if isinstance(reason, Aborted) else "timeout"
            result = await self._stop_and_wait(request.id, waiting)
        finally:
            self._open.pop(request.id, None)
        if not isinstance(result.error, Absent):
            raise ToolFailed(f"The host could not run the command: {result.error}")
        return HostCommandEnd(
            value_or_default(result.output, ""),
            result.truncated is True,
            value_or_default(result.exit_code, None),
            cause,
        )

    # Called for the host

    def on_result(self, result: HostServiceResult) -> None:
        """Accept the answer to a request; ignored for one that has ended."""
        waiting = self._open.get(result.id) if isinstance(result.id, str) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def on_host_disconnected(self) -> None:
        """The host is gone: pending and later requests fail."""
        self._gone = True
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(ToolFailed(GONE.format("what was asked")))

    async def _request_file(self, run: ToolRun, request: HostFileRead | HostFileWrite, deed: str) -> HostServiceResult:
        waiting = self._send_request(request)
        try:
            result = await run.scope.wait(asyncio.wait_for(asyncio.shield(waiting), FILE_SECONDS))
        except TimeoutError:
            self._cancel_request(request.id)
            raise ToolFailed(NO_ANSWER.format(FILE_SECONDS, deed, request.path)) from None
        except Aborted:
            self._cancel_request(request.id)
            raise
        finally:
            self._open.pop(request.id, None)
        if not isinstance(result.error, Absent):
            raise ToolFailed(result.error) if result.final is True else HostRefused(result.error)
        return result

    async def _stop_and_wait(self, id: str, waiting: asyncio.Future[HostServiceResult]) -> HostServiceResult:
        """The end of a stopped command; empty if the host does not report it in time."""
        self._cancel_request(id)
        done, _ = await asyncio.wait({waiting}, timeout=STOP_SECONDS)
        return waiting.result() if done else HostServiceResult(id=id)

    def _send_request(self, request: HostRequest) -> asyncio.Future[HostServiceResult]:
        if self._gone:
            raise ToolFailed(GONE.format("commands" if isinstance(request, HostCommandRun) else "files"))
        waiting: asyncio.Future[HostServiceResult] = asyncio.get_running_loop().create_future()
        self._open[request.id] = waiting
        self._post(request)
        return waiting

    def _cancel_request(self, id: str) -> None:
        self._post(HostServiceCancel(id=self._new_id(), target_id=id))


def _environment_difference(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, Json]:
    """What a command must see besides the host's own variables; a variable that it must not see is empty."""
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return {**changed, **{name: "" for name in before if name not in after}}
