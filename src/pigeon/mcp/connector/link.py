"""The connection to one server: handshake, lists, calls, and an end that is always reported to the agent.

    step          what is done                                       how it may fail
    -----------   ------------------------------------------------   ------------------------------------------
    connect       HTTP: the first request reaches the server         no such host, refused, a sign-in is needed
    initialize    both sides identify; the version is agreed on      time-out, garbage, it ends, an error
    list          tools, prompts and resources are listed            time-out, an error
    connected     calls; lists again when they have changed          it ends, it floods, the session is gone

A server that does not answer delays only its own link. The link ends with `failed`, or silently if it was closed. If
the streamable form of HTTP is refused, the older one is tried at the same address, as the protocol requires.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import AnyUrl, ValidationError

from pigeon.mcp.connector.device_grant import SignInNeeded
from pigeon.mcp.connector.open_work import Ask, Deadline, Elicitation, OpenCalls, StaleLists
from pigeon.mcp.connector.pipes import LARGEST_MESSAGE, ServerPipes, Streams
from pigeon.mcp.connector.records import (
    Answer,
    CallEnded,
    CallFailed,
    CallProgress,
    CallTool,
    CompleteArgument,
    FromCall,
    FromServer,
    GetPrompt,
    LinkConfig,
    LinkSignIn,
    ServerFailed,
    ServerListed,
    ServerOpened,
    ServerRequest,
    ServerResult,
    SignInChanged,
    SignInQuestion,
    StoredQuestion,
    StoredSignIn,
)
from pigeon.mcp.connector.results import (
    result_of_call,
    result_of_prompt,
    result_of_reading,
    to_offered_prompts,
    to_offered_resources,
    to_offered_tools,
)
from pigeon.mcp.connector.sign_in import SignIn
from pigeon.mcp.connector.trimming import MOST_OFFERED, MOST_TOOLS, strip_hidden_chars
from pigeon.mcp.connector.web import WebStatus, open_web_streams
from pigeon.wire.commands.mcp import McpStep, McpTransport

MOST_PAGES = 200
LIST_PAUSE = 0.25
LONGEST_LIST_PAUSE = 30.0
PROGRESS_PAUSE = 0.1
MOST_ROUNDS = 10
MOST_VALUES = 100
LONGEST_INSTRUCTIONS = 1000
# The statuses with which servers that only know the older form of HTTP refuse the streamable one, and how long such a
# server may take to begin.
OLDER_STATUSES = (400, 404, 405)
OLDER_SECONDS = 10.0
TOO_LARGE = f"the server has sent a message of more than {LARGEST_MESSAGE >> 20} MB, which was not read"
_OFFERS = ("tools", "prompts", "resources", "completions")
_NOT_FOUND = -32601
_OTHER_VERSION = -32022
_UNAUTHORIZED = (401, 403)
_T = TypeVar("_T")
Report = Callable[[FromServer | FromCall], None]


class LinkFailed(Exception):
    """Why a link has failed, as a sentence."""


class ServerLink:
    """One server. `report` sends to the agent; `ask` has the agent ask its host."""

    def __init__(
        self, key: str, config: LinkConfig, pipes: tuple[int, int, int] | None, report: Report, ask: Ask
    ) -> None:
        self._key = key
        self._config = config
        self._report = report
        self._step: McpStep = "connect" if pipes is None else "initialize"
        self._lost = asyncio.Event()
        self._web = WebStatus()
        self._calls = OpenCalls()
        self._elicitation = Elicitation(key, ask)
        self._deadline = Deadline(config.start_seconds, self._cancel)
        self._refusal = ""
        self._pipes = None if pipes is None else ServerPipes(*pipes, self._calls.cancel_overflowed)
        self._sign_in = None if pipes is not None or config.sign_in is None else self._make_sign_in(config.sign_in, ask)
        self._session: ClientSession | None = None
        self._stale = StaleLists()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run_until_closed())

    async def close(self) -> None:
        """Disconnect; nothing more is reported."""
        calls = self._calls.cancel_all()
        if calls:
            await asyncio.wait(calls, timeout=1.0)
        self._report = lambda record: None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=2.0)

    # Connecting

    @property
    def _transport(self) -> McpTransport:
        """The configured transport, unless the server has refused it."""
        return "sse" if self._refusal else self._config.transport

    async def _run_until_closed(self) -> None:
        try:
            self._deadline.start()
            await self._connect_either_transport()
            text = ""
        except asyncio.CancelledError:
            if not self._deadline.is_over:
                raise
            text = self._timeout_text()
        except BaseException as error:  # groups of exceptions are among them
            text = self._error_text(error)
        finally:
            self._deadline.stop()
            self._calls.cancel_all()
            if self._sign_in is not None:
                self._sign_in.close()
        if text:
            if self._refusal and not self._session and not self._needs_sign_in():
                text = f"{self._refusal}. The older form of HTTP (server-sent events) does not work either: {text}"
            self._report(
                ServerFailed(
                    server=self._key,
                    step=self._step if self._pipes is not None or self._web.answered else "connect",
                    text=text,
                    stderr=self._pipes.last_words if self._pipes is not None else "",
                    needs_sign_in=self._needs_sign_in(),
                    is_lost=self._lost.is_set(),
                )
            )

    def _make_sign_in(self, config: LinkSignIn, ask: Ask) -> SignIn:
        def report_stored_sign_in(stored: StoredSignIn) -> None:
            self._report(SignInChanged(server=self._key, stored=stored))

        async def fetch_stored_sign_in() -> StoredSignIn:
            stored = await ask(self._key, StoredQuestion())
            return stored if isinstance(stored, StoredSignIn) else StoredSignIn()

        async def ask_to_sign_in(question: SignInQuestion) -> Answer:
            self._deadline.stop()
            try:
                return await ask(self._key, question)
            finally:
                if self._step != "connected":
                    self._deadline.start()

        sign_in = SignIn(self._config.url, config, report_stored_sign_in, fetch_stored_sign_in)
        if self._config.is_interactive:
            sign_in.set_asker(ask_to_sign_in)
        return sign_in

    async def _connect_either_transport(self) -> None:
        try:
            await self._run_connection()
        except Exception as error:
            refused = self._transport == "http" and self._session is None and self._web.posted in OLDER_STATUSES
            if not refused or self._needs_sign_in():
                raise
            self._refusal = self._error_text(error)
        if self._refusal:
            self._web, self._lost = WebStatus(answered=True), asyncio.Event()
            self._deadline.start(OLDER_SECONDS)
            await self._run_connection()

    async def _run_connection(self) -> None:
        async with (
            self._open_streams() as (incoming, outgoing),
            ClientSession(
                incoming,
                outgoing,
                client_info=types.Implementation(name="pigeon", version=self._config.version),
                elicitation_callback=self._on_elicitation,
                list_roots_callback=self._on_list_roots,
                message_handler=self._on_message,
            ) as session,
        ):
            self._step = "initialize"
            if self._refusal:
                self._deadline.start()
            await self._do_handshake(session)
            self._session = session
            self._step = "list"
            await self._load_lists(("tools", "prompts", "resources"))
            self._step = "connected"
            self._deadline.stop()
            if self._sign_in is not None:
                self._sign_in.close()
            await self._reload_stale_lists()

    @asynccontextmanager
    async def _open_streams(self) -> AsyncIterator[Streams]:
        if self._pipes is not None:
            self._lost = self._pipes.lost
            async with self._pipes.open_streams() as streams:
                yield streams
            return
        config = self._config
        auth = None if self._sign_in is None else self._sign_in.provider
        async with open_web_streams(
            self._transport, config.url, config.headers, auth, self._web, self._lost
        ) as streams:
            yield streams

    async def _do_handshake(self, session: ClientSession) -> None:
        """Do the handshake that every server supports; if the server refuses it, the newer one."""
        asking = asyncio.ensure_future(session.initialize())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise LinkFailed(self._lost_reason())
            asking.result()
        except MCPError as error:
            if error.error.code not in (_NOT_FOUND, _OTHER_VERSION) or self._web.code in _UNAUTHORIZED:
                raise
            found = types.DiscoverResult.model_validate(await session.send_discover(LATEST_MODERN_VERSION))
            session.adopt(found)
        finally:
            asking.cancel()
            lost.cancel()
        info, able = session.server_info, session.server_capabilities
        self._report(
            ServerOpened(
                server=self._key,
                name=strip_hidden_chars(info.name)[:200] if info else "",
                version=strip_hidden_chars(info.version)[:100] if info else "",
                protocol=session.protocol_version or "",
                transport=self._transport,
                instructions=strip_hidden_chars(session.instructions or "")[:LONGEST_INSTRUCTIONS],
                offers=[kind for kind in _OFFERS if able and getattr(able, kind, None) is not None],
            )
        )

    async def _load_lists(self, kinds: tuple[str, ...]) -> None:
        session = self._session
        assert session is not None
        able = session.server_capabilities
        tools, prompts, resources, notes = None, None, None, None
        if "tools" in kinds:
            cut: list[str] = []
            listed = await self._load_pages(session.list_tools, "tools", MOST_TOOLS, cut) if able and able.tools else []
            tools, notes = to_offered_tools(listed)
            notes += cut
        if "prompts" in kinds:
            listed = await self._load_pages(session.list_prompts, "prompts") if able and able.prompts else []
            prompts = to_offered_prompts(listed)
        if "resources" in kinds:
            listed, templates = [], []
            if able and able.resources:
                listed = await self._load_pages(session.list_resources, "resources")
                templates = await self._load_pages(session.list_resource_templates, "resource_templates", optional=True)
            resources = to_offered_resources(listed, templates)
        self._report(ServerListed(server=self._key, tools=tools, prompts=prompts, resources=resources, notes=notes))

    async def _load_pages(
        self,
        ask: Callable[..., Awaitable[Any]],
        name: str,
        most: int = MOST_OFFERED,
        notes: list[str] | None = None,
        optional: bool = False,
    ) -> list[Any]:
        """The items of all pages; stops after `most` items, or when a cursor repeats. `notes` get the omissions."""
        found: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            try:
                page = await self._wait_unless_lost(
                    ask(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
                )
            except MCPError as error:
                if optional and error.error.code == _NOT_FOUND:
                    return found
                raise
            found += getattr(page, name)
            cursor = page.next_cursor
            if not cursor or cursor in seen or len(found) > most:
                break
            seen.add(cursor)
        else:
            if notes is not None:
                notes.append(f"it has more than {MOST_PAGES} pages of {name}; the others are left out")
        return found

    async def _reload_stale_lists(self) -> None:
        """Reload lists that have changed until the connection ends; the more often they change, the less often."""
        loop = asyncio.get_running_loop()
        pause, listed = LIST_PAUSE, loop.time()
        while True:
            changed = asyncio.ensure_future(self._stale.wait_until_stale())
            lost = asyncio.ensure_future(self._lost.wait())
            try:
                await asyncio.wait({changed, lost}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                lost.cancel()
            if self._lost.is_set():
                raise LinkFailed(self._lost_reason())
            # Notifications about changes often come in bursts.
            pause = min(pause * 2, LONGEST_LIST_PAUSE) if loop.time() - listed < pause * 2 else LIST_PAUSE
            await asyncio.wait([lost := asyncio.ensure_future(self._lost.wait())], timeout=pause)
            lost.cancel()
            listed = loop.time()
            kinds = self._stale.pop_all()
            self._deadline.start()
            await self._load_lists(kinds)
            self._deadline.stop()

    async def _wait_unless_lost(self, asking: Awaitable[_T]) -> _T:
        """The answer, unless the connection is lost first."""
        asked, lost = asyncio.ensure_future(asking), asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({asked, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise LinkFailed(self._lost_reason())
            return asked.result()
        finally:
            asked.cancel()
            lost.cancel()

    # Calls

    def ask_server(self, id: int, request: ServerRequest, seconds: float) -> None:
        """Send a request to the server; the agent gets exactly one `CallEnded` or `CallFailed`."""
        self._calls.start(id, self._run_and_report_call(id, request, seconds))

    def cancel(self, id: int) -> None:
        """Cancel a call of the agent, which also notifies the server."""
        self._calls.cancel(id)

    async def _run_and_report_call(self, id: int, request: ServerRequest, seconds: float) -> None:
        answer: CallEnded | CallFailed = CallFailed(id=id, text="the call was given up")
        try:
            answer = await self._fetch_answer(id, request, seconds)
        except asyncio.CancelledError:
            if not self._calls.has_overflowed(id):
                raise
            answer = CallFailed(id=id, text=TOO_LARGE)
        finally:
            self._report(answer)

    async def _fetch_answer(self, id: int, request: ServerRequest, seconds: float) -> CallEnded | CallFailed:
        session = self._session
        if session is None or self._lost.is_set():
            return CallFailed(id=id, text="the server is not connected", is_unsent=True)
        try:
            async with asyncio.timeout(seconds) as time:
                return CallEnded(id=id, result=await self._fetch_result(session, id, request, seconds, time))
        except TimeoutError:
            return CallFailed(id=id, text=f"no answer within {seconds:g} s")
        except Exception as error:
            failed = CallFailed(id=id, text=self._error_text(error))
            if isinstance(error, MCPError) and "session terminated" in error.error.message.lower():
                self._lost.set()
            return failed

    async def _fetch_result(
        self, session: ClientSession, id: int, request: ServerRequest, seconds: float, time: asyncio.Timeout
    ) -> ServerResult:
        if isinstance(request, CallTool):
            return result_of_call(await self._wait_unless_lost(self._call_tool(session, id, request, seconds, time)))
        if isinstance(request, GetPrompt):
            return result_of_prompt(await self._wait_unless_lost(session.get_prompt(request.name, request.arguments)))
        if isinstance(request, CompleteArgument):
            return await self._wait_unless_lost(self._complete_argument(session, request))
        return result_of_reading(await self._wait_unless_lost(session.read_resource(str(AnyUrl(request.uri)))))

    async def _call_tool(
        self, session: ClientSession, id: int, request: CallTool, seconds: float, time: asyncio.Timeout
    ) -> types.CallToolResult:
        loop = asyncio.get_running_loop()
        last = 0.0

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal last
            if not time.expired():
                time.reschedule(loop.time() + seconds)
            if loop.time() - last >= PROGRESS_PAUSE:
                last = loop.time()
                of = f" of {total:g}" if total else ""
                text = f"{progress:g}{of}" + (f": {strip_hidden_chars(message[:2000])}" if message else "")
                self._report(CallProgress(id=id, text=text))

        given: dict[str, Any] = {}
        for _ in range(MOST_ROUNDS):
            result = await session.call_tool(
                request.tool,
                request.arguments,
                progress_callback=on_progress,
                allow_input_required=True,
                **given,
            )
            if isinstance(result, types.CallToolResult):
                return result
            time.reschedule(None)
            responses = {
                key: await self._answer_input_request(session, wanted)
                for key, wanted in (result.input_requests or {}).items()
            }
            time.reschedule(loop.time() + seconds)
            given = {"input_responses": responses or None, "request_state": result.request_state}
            if not responses:
                await asyncio.sleep(PROGRESS_PAUSE)
        raise LinkFailed(f"the server asked more than {MOST_ROUNDS} times in one call")

    async def _complete_argument(self, session: ClientSession, request: CompleteArgument) -> ServerResult:
        reference = (
            types.PromptReference(name=request.prompt)
            if request.prompt is not None
            else types.ResourceTemplateReference(uri=request.template or "")
        )
        argument = {"name": request.argument, "value": request.value}
        found = await session.complete(reference, argument, request.known or None)
        return ServerResult(values=[value[:1000] for value in found.completion.values[:MOST_VALUES]])

    async def _answer_input_request(self, session: ClientSession, wanted: Any) -> Any:
        """Ask what the server wants to know before it continues."""
        if isinstance(wanted, types.ElicitRequest):
            return await self._on_elicitation(None, wanted.params)
        if isinstance(wanted, types.ListRootsRequest):
            return await self._on_list_roots(None)
        raise LinkFailed("the server asked for an answer from the model (sampling), which Pigeon refuses")

    # Requests of the server

    async def _on_elicitation(self, context: Any, params: Any) -> types.ElicitResult:
        return await self._elicitation.ask(params)

    async def _on_list_roots(self, context: Any) -> types.ListRootsResult:
        folder = self._config.folder
        return types.ListRootsResult(roots=[types.Root(uri=AnyUrl(f"file://{quote(folder)}"), name=folder)])  # type: ignore[arg-type]

    async def _on_message(self, message: Any) -> None:
        kinds: dict[type, str] = {
            types.ToolListChangedNotification: "tools",
            types.PromptListChangedNotification: "prompts",
            types.ResourceListChangedNotification: "resources",
        }
        kind = kinds.get(type(getattr(message, "root", message)))
        if kind is not None:
            self._stale.mark_stale(kind)

    # The end of the connection

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _timeout_text(self) -> str:
        said = f"it has not answered within {self._deadline.seconds:g} s"
        if self._pipes is not None and self._pipes.first_garbage:
            said += f"; what it wrote to stdout is not a message: {self._pipes.first_garbage!r}"
        return said

    def _lost_reason(self) -> str:
        if self._pipes is None:
            return self._http_failure_text() or "the connection was closed"
        said = self._pipes.why_lost
        if self._pipes.first_garbage and self._step == "initialize":
            said += f"; what it wrote to stdout is not a message: {self._pipes.first_garbage!r}"
        return said

    def _needs_sign_in(self) -> bool:
        refused = self._web.code in _UNAUTHORIZED and self._step in ("connect", "initialize", "list")
        return self._pipes is None and (refused or bool(self._sign_in_text()))

    def _sign_in_text(self) -> str:
        return "" if self._sign_in is None else self._sign_in.provider.needed

    def _http_failure_text(self) -> str:
        return self._sign_in_text() or self._web.failure

    def _error_text(self, error: BaseException) -> str:
        """The text of an error; for a group, the text of what it contains."""
        while isinstance(error, BaseExceptionGroup):
            inner = [one for one in error.exceptions if not isinstance(one, asyncio.CancelledError)]
            error = inner[0] if inner else error.exceptions[0]
        if isinstance(error, SignInNeeded | LinkFailed):
            return str(error)
        if isinstance(error, MCPError) and error.error.code == types.CONNECTION_CLOSED and self._lost.is_set():
            return self._lost_reason()
        if isinstance(error, MCPError):
            web = self._http_failure_text() if self._step != "connected" else ""
            said = strip_hidden_chars(error.error.message[:2000])
            if web and said and said not in web:
                return f"{web}: {said}"
            return web or said or "the server answered with an error"
        if isinstance(error, httpx2.HTTPStatusError):
            answered = error.response
            return (
                self._http_failure_text()
                or f"the server answered {answered.status_code} {answered.reason_phrase}".rstrip()
            )
        if isinstance(error, httpx2.ConnectError):
            return f"no connection to the server: {error}"
        if isinstance(error, httpx2.TimeoutException):
            return f"the server does not answer in time ({type(error).__name__})"
        if isinstance(error, ValidationError):
            first = error.errors()[0] if error.errors() else {"loc": (), "msg": "wrong"}
            place = ".".join(str(part) for part in first["loc"])
            return f"the server's answer does not fit the protocol ({place}: {first['msg']})"
        text = str(error).strip() or type(error).__name__
        return text[:2000]
