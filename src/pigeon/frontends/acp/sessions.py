"""The sessions of one connection: how they are opened, listed, asked and closed.

`Beginning` is what a conversation is made from; the command line makes it, so that this package knows
`pigeon.Conversation` and not how an agent is put together.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pigeon.frontends.acp.editions.auth_methods import NO_KEY
from pigeon.frontends.acp.editions.edition import Edition, usage_member
from pigeon.frontends.acp.incoming import (
    CancelTerminalParams,
    CancelToolCallParams,
    ListSessionsParams,
    NewSessionParams,
    OpenSessionParams,
    PromptParams,
    SessionParams,
    SetConfigOptionParams,
    SetModelParams,
    SetModeParams,
    SetTitleParams,
    SystemPromptGiven,
    servers_by_name,
)
from pigeon.frontends.acp.options import MODE, MODEL
from pigeon.frontends.acp.prompt_blocks import prompt_of, system_prompt_of
from pigeon.frontends.acp.prompt_turns import PromptTurn
from pigeon.frontends.acp.questions import EditorQuestions
from pigeon.frontends.acp.rpc_errors import (
    AUTH_REQUIRED,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    RpcError,
    bad_params_error,
    no_session_error,
)
from pigeon.frontends.acp.rpc_peer import RpcPeer
from pigeon.frontends.acp.session import EditorSession
from pigeon.sdk.conversation import Conversation
from pigeon.sdk.errors import ConversationClosed
from pigeon.sdk.host_calls import OnDialog, OnPermission
from pigeon.wire.answers import SessionRow
from pigeon.wire.base import Json
from pigeon.wire.errors import PigeonError, StartupError

MOST_SESSIONS = 1000
PAGE = 50


class Beginning(Struct, frozen=True, kw_only=True):
    """What a conversation begins with: a folder, further ones, at most one of the next three members, and text for the
    system prompt."""

    cwd: str
    further: tuple[str, ...] = ()
    session: str | None = None
    fork: str | None = None
    unsaved: bool = False
    append_system_prompt: tuple[str, ...] = ()
    system_prompt: str | None = None


class Begin(Protocol):
    """Creates and opens a conversation; raises `StartupError`."""

    async def __call__(
        self, beginning: Beginning, on_permission: OnPermission | None = None, on_dialog: OnDialog | None = None
    ) -> Conversation: ...


class EditorSessions:
    """All sessions of one connection, in the version that was agreed on."""

    def __init__(self, begin: Begin, peer: RpcPeer, edition: Edition, home: str, cwd: str) -> None:
        self._begin = begin
        self._peer = peer
        self._edition = edition
        self._home = home
        self._cwd = cwd
        self._sessions: dict[str, EditorSession] = {}
        # Sessions that are being opened, closed or deleted.
        self._changing: dict[str, asyncio.Future[None]] = {}
        self._logged_out = False
        self._later: set[asyncio.Future[Any]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def set_logged_out(self, out: bool) -> None:
        self._logged_out = out

    async def can_begin(self) -> bool:
        """True unless the client has logged out or there is no key."""
        return not self._logged_out and await self.has_key()

    async def has_key(self) -> bool:
        """Whether any model can be used; looks for keys again."""
        async with self._open_unsaved_conversation(self._cwd) as conversation:
            return bool((await conversation.get_available_models()).models)

    def cancel(self, session_id: str) -> None:
        """session/cancel; ignored for a session that is not open."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.cancel()

    # Sessions

    async def create_session(self, params: NewSessionParams) -> dict[str, Json]:
        beginning = self._make_beginning(params)
        self._check_logged_in()
        return await self._open_new(beginning, params)

    async def load(self, params: OpenSessionParams) -> dict[str, Json]:
        """session/load: the whole conversation is sent as updates before the answer."""
        return await self._reopen(params, replayed=True)

    async def resume(self, params: OpenSessionParams) -> dict[str, Json]:
        """session/resume: in version 2 with the conversation as updates, if the client asks for it."""
        start = params.replay_from
        if start is not None and start.type != "start":
            raise bad_params_error(f'"replayFrom.type" cannot be "{start.type}" (allowed: "start")')
        return await self._reopen(params, replayed=start is not None)

    async def _reopen(self, params: OpenSessionParams, replayed: bool) -> dict[str, Json]:
        beginning = self._make_beginning(params)
        servers = servers_by_name(params.mcp_servers or ())
        async with self._locking(params.session_id):
            session = self._sessions.get(params.session_id)
            is_new = session is None
            if session is None:
                session = await self._open_saved(params, beginning, servers)
            elif not _is_same_folder(session.cwd, params.cwd):
                raise bad_params_error(f'The session is open in another folder: "cwd" must be {session.cwd}')
            else:
                await session.use_mcp_servers(servers)
        try:
            with _translate_closed_error(session.id):
                if replayed:
                    await session.replay()
                return await self._answer_start(session, new=False)
        except BaseException:
            if is_new:
                async with self._locking(session.id):
                    await self._close_failed(session)
            raise

    @asynccontextmanager
    async def _locking(self, session_id: str) -> AsyncIterator[None]:
        """While this context is open, no other request opens, closes or deletes the session."""
        while session_id in self._changing:
            await asyncio.wait({self._changing[session_id]})
        changed = self._changing[session_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._changing[session_id]
            changed.set_result(None)

    async def _open_saved(
        self, params: OpenSessionParams, beginning: Beginning, servers: dict[str, Json]
    ) -> EditorSession:
        row = await self._find_saved(params.session_id, params.cwd)
        if not _is_same_folder(row.cwd, params.cwd):
            raise bad_params_error(f'The session belongs to another folder: "cwd" must be {row.cwd}')
        _check_not_in_use(row)
        return await self._open(replace(beginning, session=row.reference), servers)

    async def fork(self, params: OpenSessionParams) -> dict[str, Json]:
        """session/fork: a new session with a copy of the conversation so far."""
        beginning = self._make_beginning(params)
        self._check_logged_in()
        source = self._sessions.get(params.session_id)
        try:
            row = await self._find_saved(params.session_id, params.cwd)
        except RpcError:
            # An open session without messages has no file yet.
            if source is None:
                raise
        else:
            beginning = replace(beginning, fork=row.reference)
        return await self._open_new(beginning, params)

    async def list_sessions(self, params: ListSessionsParams) -> dict[str, Json]:
        """session/list: those of a folder, or of all."""
        if params.cwd is not None:
            _check_absolute_path("cwd", params.cwd)
            if not _is_folder(params.cwd):
                return {"sessions": []}
        async with self._open_unsaved_conversation(params.cwd or self._cwd) as conversation:
            page = await conversation.list_sessions(
                scope="all" if params.cwd is None else "project", cursor=params.cursor, limit=PAGE
            )
        rows = [row for row in page.sessions if params.cwd is None or _is_same_folder(row.cwd, params.cwd)]
        cursor = {} if not page.next_cursor else {"nextCursor": page.next_cursor}
        return {"sessions": [_row_record(row) for row in rows if row.cwd.startswith("/")], **cursor}

    async def close_session(self, params: SessionParams) -> dict[str, Json]:
        async with self._locking(params.session_id):
            if not await self._close_if_open(params.session_id) and self._edition.version == 1:
                raise no_session_error(params.session_id)
        return {}

    async def _close_if_open(self, session_id: str) -> bool:
        """Returns False if it is not open."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
        return session is not None

    async def delete(self, params: SessionParams) -> dict[str, Json]:
        """session/delete: closed if it is open, and moved to the trash; one that is not there counts as deleted."""
        async with self._locking(params.session_id), self._open_unsaved_conversation(self._cwd) as conversation:
            await self._close_if_open(params.session_id)
            for row in (await conversation.list_sessions(scope="all", session_id=params.session_id)).sessions:
                _check_not_in_use(row)
                await conversation.delete_session(row.reference)
        return {}

    async def set_title(self, params: SetTitleParams) -> dict[str, Json]:
        """session/set_title, also of a session that is not open."""
        title = " ".join(params.title.split())
        if not title:
            raise bad_params_error('"title" is empty')
        async with self._locking(params.session_id):
            session = self._sessions.get(params.session_id)
            if session is not None:
                await session.conversation.set_session_name(title)
                return {"title": title}
            row = await self._find_saved(params.session_id, self._cwd)
            _check_not_in_use(row)
            conversation = await _begin_uncancelled(self._begin(Beginning(cwd=row.cwd, session=row.reference)))
            try:
                await conversation.set_session_name(title)
            finally:
                await conversation.close()
        return {"title": title}

    async def session_status(self, params: SessionParams) -> dict[str, Json]:
        if params.session_id in self._sessions:
            return {"status": "open"}
        await self._find_saved(params.session_id, self._cwd)
        return {"status": "saved"}

    # Requests about an open session

    def prompt(self, params: PromptParams) -> Any:
        """session/prompt: begun at once, so that a cancellation that follows reaches it."""
        session = self._find_open(params.session_id)
        turn = session.register_prompt(prompt_of(params.prompt))
        return self._run_prompt(session, turn)

    async def _run_prompt(self, session: EditorSession, turn: PromptTurn) -> dict[str, Json]:
        if self._edition.version == 1:
            end = await session.run_prompt(turn)
            if end.error is not None and end.stop != "cancelled":
                raise end.error
            return {"stopReason": end.stop, **usage_member(end.usage)}
        running = asyncio.ensure_future(session.run_prompt(turn))
        self._keep_task(running)
        await asyncio.wait({turn.taken})
        if not turn.inserted:
            end = turn.ended.result()
            raise end.error or RpcError(REQUEST_CANCELLED, "The prompt was cancelled before it started")
        return {"messageId": turn.message_id}

    async def set_mode(self, params: SetModeParams) -> dict[str, Json]:
        with _translate_closed_error(params.session_id):
            await self._find_open(params.session_id).set_option(MODE, params.mode_id)
        return {}

    async def set_model(self, params: SetModelParams) -> dict[str, Json]:
        with _translate_closed_error(params.session_id):
            await self._find_open(params.session_id).set_option(MODEL, params.model_id)
        return {}

    async def set_config_option(self, params: SetConfigOptionParams) -> dict[str, Json]:
        session = self._find_open(params.session_id)
        if params.type not in (None, "id", "select"):
            raise bad_params_error(f'"type" cannot be "{params.type}": every option of Pigeon is a choice (type "id")')
        with _translate_closed_error(params.session_id):
            options = await session.set_option(params.config_id, params.value)
        return {"configOptions": self._edition.option_records(options)}

    async def cancel_call(self, params: CancelToolCallParams) -> dict[str, Json]:
        if not await self._find_open(params.session_id).cancel_call(params.tool_call_id):
            raise bad_params_error(f'There is no tool call "{params.tool_call_id}" that runs')
        return {}

    async def cancel_terminal(self, params: CancelTerminalParams) -> dict[str, Json]:
        """terminal/cancel: the terminal id of a command is the id of its tool call."""
        if not await self._find_open(params.session_id).cancel_call(params.terminal_id):
            raise bad_params_error(f'There is no terminal "{params.terminal_id}" in which a command runs')
        return {}

    # Helpers

    def _find_open(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise no_session_error(session_id)
        return session

    def _check_logged_in(self) -> None:
        if self._logged_out:
            raise RpcError(AUTH_REQUIRED, "The client has logged out: authenticate first")

    def _make_beginning(self, params: NewSessionParams | OpenSessionParams) -> Beginning:
        _check_absolute_path("cwd", params.cwd)
        if not os.path.isdir(params.cwd):
            raise bad_params_error(f'"cwd" is not a folder: {params.cwd}')
        others = params.additional_directories or []
        for index, folder in enumerate(others):
            _check_absolute_path(f"additionalDirectories[{index}]", folder)
        beginning = Beginning(
            cwd=params.cwd, further=tuple(others), append_system_prompt=_describe_extra_folders(others)
        )
        return _with_system_prompt(beginning, params.system_prompt)

    async def _open_new(self, beginning: Beginning, params: NewSessionParams | OpenSessionParams) -> dict[str, Json]:
        """Open a session whose id the client does not know yet, and return the answer."""
        session = await self._open(beginning, servers_by_name(params.mcp_servers or ()))
        try:
            return await self._answer_start(session, new=True)
        except BaseException:
            # The request was cancelled: its client does not know the id.
            await self._close_failed(session)
            raise

    async def _open(self, beginning: Beginning, servers: dict[str, Json]) -> EditorSession:
        if len(self._sessions) >= MOST_SESSIONS:
            raise RpcError(INVALID_REQUEST, f"More than {MOST_SESSIONS} sessions are open; close some of them")
        opened: list[str] = []

        def is_running() -> bool:
            session = self._sessions.get(opened[0]) if opened else None
            return session is not None and session.is_running

        def find_plan_call(plan: str) -> str | None:
            session = self._sessions.get(opened[0]) if opened else None
            return None if session is None else session.find_plan_call(plan)

        cwd = beginning.cwd
        questions = EditorQuestions(
            self._peer, self._edition, lambda: opened[0], is_running, find_plan_call, cwd, self._home
        )
        try:
            conversation = await _begin_uncancelled(
                self._begin(beginning, questions.ask_permission, questions.ask_dialog)
            )
        except StartupError as error:
            raise RpcError(INVALID_REQUEST, str(error)) from None
        try:
            state = await conversation.get_state()
            if beginning.session is None and not (await conversation.get_available_models()).models:
                raise RpcError(AUTH_REQUIRED, NO_KEY)
            id = state.session_id
            opened.append(id)
            session = EditorSession(
                id, conversation, self._edition, self._peer, cwd, self._home, lambda: self._forget(session)
            )
        except BaseException:
            await conversation.close()
            raise
        self._sessions[id] = session
        try:
            await session.use_client_services([cwd, *beginning.further])
            await session.use_mcp_servers(servers)
        except BaseException:
            await self._close_failed(session)
            raise
        return session

    def _forget(self, session: EditorSession) -> None:
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]

    async def _close_failed(self, session: EditorSession) -> None:
        """Close a session that was opened for a request that failed."""
        self._forget(session)
        await session.close()

    async def _answer_start(self, session: EditorSession, new: bool) -> dict[str, Json]:
        start = await session.read_start_details(new)
        if new:
            # After the answer, without which the client does not know the session.
            asyncio.get_running_loop().call_soon(
                lambda: self._keep_task(asyncio.ensure_future(session.send_opening_updates()))
            )
        else:
            # Before the answer, after which nothing is sent without cause; less if the session is closed meanwhile.
            with suppress(PigeonError):
                await session.send_opening_updates()
        return self._edition.session_result(start)

    def _keep_task(self, task: asyncio.Future[Any]) -> None:
        self._later.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        self._later.discard(task)
        if not task.cancelled():
            # A closed session sends no updates.
            task.exception()

    async def _find_saved(self, session_id: str, cwd: str) -> SessionRow:
        """The session with exactly this id, wherever it is; raises `RpcError`."""
        async with self._open_unsaved_conversation(cwd) as conversation:
            rows = (await conversation.list_sessions(scope="all", session_id=session_id)).sessions
        if not rows:
            raise no_session_error(session_id, f'There is no session "{session_id}"; session/list lists them')
        return rows[0]

    @asynccontextmanager
    async def _open_unsaved_conversation(self, cwd: str) -> AsyncIterator[Conversation]:
        """A conversation without a file, for queries about sessions and models."""
        conversation = await _begin_uncancelled(self._begin(Beginning(cwd=cwd, unsaved=True)))
        try:
            yield conversation
        finally:
            await conversation.close()

    async def close(self) -> None:
        """End all sessions; what runs is cancelled."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        if sessions:
            await asyncio.wait([asyncio.ensure_future(session.close()) for session in sessions])
        for task in list(self._later):
            task.cancel()


async def _begin_uncancelled(beginning: Coroutine[Any, Any, Conversation]) -> Conversation:
    """Finish opening a conversation even if the caller is cancelled, and then close it at once."""
    task = asyncio.ensure_future(beginning)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(PigeonError):
            await (await task).close()
        raise


@contextmanager
def _translate_closed_error(session_id: str) -> Iterator[None]:
    """Report a session that another request has closed meanwhile as not open, instead of as an internal error."""
    try:
        yield
    except ConversationClosed:
        raise no_session_error(session_id, f'The session "{session_id}" has been closed') from None


def _check_not_in_use(row: SessionRow) -> None:
    if row.in_use is True:
        raise RpcError(
            INVALID_REQUEST,
            f"The session is in use: another process is writing {row.reference}. Close it there first, or fork it",
        )


def _check_absolute_path(name: str, path: str) -> None:
    if not os.path.isabs(path) or "\0" in path:
        raise bad_params_error(f'"{name}" must be an absolute path, not {path!r}')


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)


def _is_same_folder(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _describe_extra_folders(folders: Sequence[str]) -> tuple[str, ...]:
    if not folders:
        return ()
    return ("Additional folders of the workspace, besides the working directory:\n" + "\n".join(folders),)


def _with_system_prompt(beginning: Beginning, given: SystemPromptGiven | None) -> Beginning:
    if given is None:
        return beginning
    if given.mode == "append":
        return replace(
            beginning, append_system_prompt=(*beginning.append_system_prompt, system_prompt_of(given.content))
        )
    if given.mode == "override":
        return replace(beginning, system_prompt=system_prompt_of(given.content))
    raise bad_params_error(f'"systemPrompt.mode" cannot be "{given.mode}" (allowed: "append", "override")')


def _row_record(row: SessionRow) -> dict[str, Json]:
    title = row.name or row.first_message
    return {
        "sessionId": row.id,
        "cwd": row.cwd,
        "updatedAt": row.modified,
        **({"title": " ".join(title.split())[:200]} if title else {}),
    }
