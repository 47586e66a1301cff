"""`Agent`: a conversation whose agent lives in this process. No subprocess, no JSON; several can coexist."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict

from pigeon.sdk.conversation import FEATURES, Conversation
from pigeon.sdk.errors import ConversationClosed
from pigeon.sdk.host_calls import AnyTool, OnDialog, OnPermission
from pigeon.wire.commands import Command, Hello, SetHostTools
from pigeon.wire.errors import PigeonError

if TYPE_CHECKING:
    from typing import Unpack

    from pigeon.app.build import BuiltAgent
    from pigeon.rpc.in_process import InProcessHost
    from pigeon.store.protocol import SessionStore
    from pigeon.system.environment import Environment
    from pigeon.wire.agents import AgentType
    from pigeon.wire.choices import ApprovalMode, SandboxMode
    from pigeon.wire.steering import Limits
    from pigeon.workspaces.workspace import Workspace


class AgentChoices(TypedDict, total=False):
    """The further options of an agent, named as on the command line.

    Attributes:
        provider: the model's provider, if the name of the model alone is ambiguous
        models: the models that `cycle_model` goes through, as names or patterns
        api_key: a key for the model's provider, for this agent only
        thinking: how much the model thinks: `off`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`
        session_id: the id of a session to continue, or to start if there is none
        continue_newest: whether to continue the newest session of the folder
        fork: a session whose copy to start with, by path or id
        no_session: whether to keep nothing on disk
        session_dir: the folder in which sessions are kept
        store: where conversations are kept: an address, as of `--store`, or a `SessionStore`
        node: with a store, the name of this process as the owner of conversations
        lease_seconds: with a store, how long a conversation stays owned by a process that has died
        continue_runs: whether a run goes on that the death of its process has interrupted
        name: the display name of the session
        builtin_tools: Pigeon's tools that the model gets, by name or pattern, or changes such as `+ls` and `-bash`
        exclude_tools: tools that the model does not get, by name or pattern
        no_builtin_tools: whether to leave out all of Pigeon's tools
        extensions: paths of extensions to load
        no_extensions: whether to load only the extensions named here
        skills: paths of skills to load
        no_skills: whether to load only the skills named here
        prompt_templates: paths of prompt templates to load
        no_prompt_templates: whether to load only the templates named here
        no_context_files: whether to leave out AGENTS.md and the like
        no_rules: whether to leave out stream rules
        system_prompt: the system prompt to use instead of the usual one, as a text or the path of a file
        append_system_prompt: texts, or paths of files, to add to the system prompt
        trust_project: whether the project's settings and extensions are used; by default as the user decided earlier
        record: a file in which to record all exchanges with model servers, for `recorded/FILE`
        approval_mode: which tool calls need approval where no rule decides; with `yolo`, the default, none
        agents: types of agents that the model may start with the tool `task`, besides those of files
        sandbox: the sandbox for commands: `off`, `read-only` or `workspace`; by default as the settings say
        sandbox_network: whether commands in the sandbox reach the network
        container: an image: the agent works in a container of it, with its folder mounted, for as long as it is open
        container_engine: `podman` or `docker`; by default the first of them that is installed
    """

    provider: str
    models: Sequence[str]
    api_key: str
    thinking: str
    session_id: str
    continue_newest: bool
    fork: str
    no_session: bool
    session_dir: str
    store: str | SessionStore
    node: str
    lease_seconds: float
    continue_runs: bool
    name: str
    builtin_tools: Sequence[str]
    exclude_tools: Sequence[str]
    no_builtin_tools: bool
    extensions: Sequence[str]
    no_extensions: bool
    skills: Sequence[str]
    no_skills: bool
    prompt_templates: Sequence[str]
    no_prompt_templates: bool
    no_context_files: bool
    no_rules: bool
    system_prompt: str
    append_system_prompt: Sequence[str]
    trust_project: bool
    record: str
    approval_mode: ApprovalMode
    agents: Sequence[AgentType]
    sandbox: SandboxMode
    sandbox_network: bool
    container: str
    container_engine: str


class Agent(Conversation):
    """An agent in this process: no subprocess, no JSON. Several can coexist.

    It starts with `async with`, which raises `StartupError` for options that cannot be used.

    Args:
        model: an id, `provider/id` or part of a name; by default the one in the settings
        cwd: the folder in which it works; by default the current one
        workspace: where its files are and its commands run: the URL of another machine, or a `Workspace`
        tools: functions that the model may call, with or without `@pigeon.tool`
        limits: the most that the conversation may use
        permissions: rules that tighten those of the user, as a dictionary, as JSON or as the path of a file
        on_permission: is called for each tool call that needs approval; without it, all of these are denied
        on_dialog: is called with the questions of extensions; without it, they are cancelled
        unattended: whether there is no person to ask; the model knows that, and verifies its work before it ends
        session: a session to continue, by path or id
        agent_dir: the folder of settings, keys and sessions; by default that of the user
        env: the environment variables that it sees, instead of those of the process

    Example:
        import asyncio

        import pigeon


        async def main() -> None:
            async with pigeon.Agent(model="demo") as agent:
                async for event in agent.prompt("list the files"):
                    if isinstance(event, pigeon.TextDelta):
                        print(event.delta, end="")


        asyncio.run(main())
    """

    def __init__(  # noqa: PLR0913 - the names are those of the options
        self,
        *,
        model: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        tools: Sequence[AnyTool] = (),
        limits: Limits | None = None,
        permissions: str | Mapping[str, Any] | None = None,
        on_permission: OnPermission | None = None,
        on_dialog: OnDialog | None = None,
        unattended: bool = False,
        session: str | os.PathLike[str] | None = None,
        agent_dir: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        workspace: str | Workspace | None = None,
        **choices: Unpack[AgentChoices],
    ) -> None:
        super().__init__(tools, on_permission, on_dialog)
        paths = {"cwd": cwd, "session": session, "agent_dir": agent_dir}
        given = {"model": model, "permissions": permissions, **{name: _as_text(path) for name, path in paths.items()}}
        asked = {"limits": limits, "unattended": unattended, "workspace": workspace}
        is_watched = on_permission is not None or on_dialog is not None
        self._options = {
            **given,
            **{name: value for name, value in asked.items() if value},
            "is_watched": is_watched,
            "offers": ("agents",),
            **as_options(choices),
        }
        self._env = env
        self._ready: BuiltAgent | None = None
        self._built: BuiltAgent | None = None
        self._host: InProcessHost | None = None
        self._warming: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._asked: asyncio.Future[None] | None = None

    @classmethod
    def over(
        cls, built: BuiltAgent, on_permission: OnPermission | None = None, on_dialog: OnDialog | None = None
    ) -> Agent:
        """The conversation of an agent that was already built for the dialect `SPOKEN`; for other packages of Pigeon.

        Its questions are denied if there is no callback for them.
        """
        agent = cls(on_permission=on_permission, on_dialog=on_dialog)
        agent._ready = built
        return agent

    @property
    def warnings(self) -> list[str]:
        """Problems with settings and files that did not keep the agent from starting."""
        return [] if self._built is None else list(self._built.problems)

    async def open(self) -> None:
        """Put the agent together; raises `StartupError`."""
        if self._host is not None:
            raise ConversationClosed("The agent is open already")
        from pigeon import __version__
        from pigeon.system.garbage import pausing_garbage_collection

        with pausing_garbage_collection():
            from pigeon.rpc.in_process import InProcessHost

        built = self._built = self._ready or await self._build_agent()
        self._host = InProcessHost(built.session, __version__, self._on_record, built.redactor.mask)
        try:
            await self._call(Hello(dialect="pi-latest", features=FEATURES))
            await built.lifecycle.on_host_ready(self._on_end_requested)
            if tools := self._host_calls.definitions():
                await self._call(SetHostTools(tools=tools))
            built.session.engine.continue_interrupted_run()
        except BaseException:
            await self.close()
            raise
        self._warming = asyncio.ensure_future(built.session.warm_up())

    async def _build_agent(self) -> BuiltAgent:
        from pigeon.system.garbage import pausing_garbage_collection

        with pausing_garbage_collection():
            from pigeon.app.build import build
            from pigeon.app.options import AgentOptions
            from pigeon.rpc.in_process import SPOKEN

        return await build(AgentOptions(**self._options).for_dialect(SPOKEN), self._make_environment())

    def _make_environment(self) -> Environment:
        from msgspec.structs import replace

        from pigeon.app.environment import environment_of_process

        surroundings = environment_of_process()
        if self._env is None:
            return surroundings
        return replace(surroundings, variables=self._env, home=self._env.get("HOME") or surroundings.home)

    async def close(self) -> None:
        """Stop what runs and end the agent; nothing of it remains."""
        if self._built is not None and self._host is not None:
            self._ending = asyncio.ensure_future(self._shut_down(self._built, self._host))
            self._built = self._host = None
        if self._ending is not None:
            # It continues to its end even if the requesting task is cancelled.
            await asyncio.shield(self._ending)

    async def _shut_down(self, built: BuiltAgent, host: InProcessHost) -> None:
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait({self._warming})
        self._close_readers(None)
        await built.lifecycle.close_extensions()
        await built.session.close()
        await built.lifecycle.stop()
        await host.wait_until_drained()
        await self._runs.wait_for_abandoned_runs()

    def _on_end_requested(self) -> None:
        """End the agent because an extension requested it."""
        self._asked = asyncio.ensure_future(self.close())

    def _call(self, command: Command, answered: Callable[[Any], None] | None = None) -> Awaitable[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def settle_answer(data: Any, error: BaseException | None) -> None:
            if error is None and answered is not None:
                answered(data)
            if answer.done():
                return
            if error is None:
                answer.set_result(data)
            else:
                answer.set_exception(error)

        if self._host is None:
            answer.set_exception(ConversationClosed())
            return answer
        try:
            self._host.submit(command, settle_answer)
        except PigeonError as error:
            answer.set_exception(error)
        return answer

    def _send_unanswered(self, command: Command) -> None:
        if self._host is not None:
            with suppress(PigeonError):
                self._host.submit(command, lambda data, error: None)


def _as_text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def as_options(choices: AgentChoices) -> dict[str, Any]:
    """The further options of an agent under their names in `AgentOptions`."""
    options: dict[str, Any] = dict(choices)
    if "builtin_tools" in options:
        options["tools"] = options.pop("builtin_tools")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
