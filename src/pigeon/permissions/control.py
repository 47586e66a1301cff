"""The permission rules of an agent: those of the settings and of the host, and the gate that applies them.

As long as there are no rules there is no gate, and `permissions/rules` is not imported; `set_permissions` can create
one at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from pigeon.agent.interfaces import Gate
from pigeon.config.json_file import decode_with_comments, read_json
from pigeon.config.layers import Layers
from pigeon.session.context.transcript import Transcript
from pigeon.session.dependencies import KeptAllowance
from pigeon.session.host.dialogs import Dialogs
from pigeon.session.host.reports import Reports
from pigeon.session.plan_state import PlanState
from pigeon.session.toolset import Toolset
from pigeon.system.environment import Environment
from pigeon.system.paths import PathResolver
from pigeon.wire.answers import Permissions
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.choices import PLAN, ApprovalMode
from pigeon.wire.dialogs import SelectRequest
from pigeon.wire.errors import BadRecord, Refusal, StartupError
from pigeon.wire.events import Outbound, PermissionOutcome, PermissionResolved
from pigeon.workspaces.agent_workspace import AgentWorkspace

if TYPE_CHECKING:
    from pigeon.permissions.gate import AllowedCall, Ask, PermissionGate, PermissionQuestion
    from pigeon.permissions.protected import ProtectedPlaces
    from pigeon.permissions.rules import PermissionLayers, PermissionRules


class HostPermissions(Struct, frozen=True):
    """The host's requests at the start of the agent: rules as JSON, as a file path or parsed, a mode, and whether
    questions are denied at once (`unattended`) or wait without a time limit (`attended`)."""

    rules: str | Mapping[str, Any] | None = None
    approval_mode: ApprovalMode = "yolo"
    unattended: bool = False
    attended: bool = False


class SessionParts(Struct, frozen=True, kw_only=True):
    """The parts of the session that permissions are about."""

    transcript: Transcript
    toolset: Toolset
    dialogs: Dialogs
    post: Callable[[Outbound], None]
    workspace: AgentWorkspace


class AgentPermissions:
    """The permissions of one agent; `gate` is read again for each call.

    `own` are the absolute paths of the agent's folder and of its extensions, which a model must not write unless a rule
    names them. `extending` is the gate of extensions, which comes after the rules. `walled` means that there is a
    sandbox: then a last gate asks about commands that are to run outside.
    """

    def __init__(
        self,
        asked: HostPermissions,
        environment: Environment,
        settings: Layers,
        reports: Reports,
        own: Sequence[str],
        session: SessionParts,
        extending: Gate | None,
        walled: Callable[[], bool],
    ) -> None:
        self._workspace = session.workspace
        self._asked_for = asked
        self._environment = environment
        self._settings = settings
        self._reports = reports
        self._own = own
        self._session = session
        self._host_mode: ApprovalMode = asked.approval_mode
        self._mode_before_plan: ApprovalMode = "yolo"
        self.plan_state = PlanState()
        self._extending = extending
        self._walled = walled
        self._leaving: Gate | None = None
        self._layers: PermissionLayers | None = None
        self._asking: PermissionGate | None = None
        # Allowances that wait for a gate: there is none before there are rules.
        self._kept: list[KeptAllowance] = []
        # What was allowed for the session, by any agent of the conversation.
        self._allowed: dict[AllowedCall, None] = {}
        self._gate = extending

    def build_gate(self) -> Gate | None:
        """Returns the gate before the next tool call; None if there are neither rules nor extensions nor a sandbox."""
        if not self._walled():
            return self._gate
        from pigeon.permissions.gate_chain import chain_gates
        from pigeon.permissions.sandbox_exit import SandboxExitGate

        if self._leaving is None:
            self._leaving = SandboxExitGate(self._ask, self._timeout_ms, self._asked_for.unattended)
        return self._leaving if self._gate is None else chain_gates([self._gate, self._leaving])

    def _timeout_ms(self) -> int | None:
        return self._current_layers().timeout_ms

    def _current_layers(self) -> PermissionLayers:
        """The rules in force; without any, layers that are empty."""
        from pigeon.permissions.rules import ASK_MS, PermissionLayers

        unless_set = None if self._asked_for.attended else ASK_MS
        return self._layers or PermissionLayers(timeout_unless_set=unless_set)

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """Read the rules in the settings for this folder, and at the first call also those of the host.

        Errors in settings are reported, and so are rules for tools that do not exist. Invalid options raise
        `StartupError`.
        """
        asked, settings, reports = self._asked_for, self._settings, self._reports
        mode = settings.settings.tools.approval_mode
        given = (settings.user_permissions, settings.project_permissions, asked.rules)
        silent = mode == asked.approval_mode == "yolo" and given == (None, None, None) and not settings.doubts
        if silent and self._layers is None:
            return
        from pigeon.permissions.rules import build_layers, describe_unknown_tools

        layers = build_layers(given[0], given[1], mode, reports.add_startup_warning, settings.doubts)
        before = self._current_layers()
        host = self._parse_asked_host_rules() if self._layers is None else before.host
        layers = replace(layers, host=host, timeout_unless_set=before.timeout_unless_set)
        for problem in describe_unknown_tools(layers, self._session.toolset.all_names()):
            reports.add_startup_problem(problem)
        self._use_layers(layers)

    def _parse_asked_host_rules(self) -> PermissionRules:
        from pigeon.permissions.rules import parse_host_rules

        given = self._asked_for.rules
        try:
            value = {} if given is None else _read_host_value(given, self._environment)
            return parse_host_rules(value, self._asked_for.approval_mode)
        except Refusal as problem:
            raise StartupError(f"--permissions: {problem}") from problem

    def set_host_rules(self, rules: Json) -> None:
        """Replace the rules of the host, from the next call on; raises `Refusal`. The approval mode stays."""
        from pigeon.permissions.rules import parse_host_rules

        host = parse_host_rules(rules, self._host_mode)
        self._use_layers(replace(self._current_layers(), host=host))

    def set_host_mode(self, mode: ApprovalMode) -> None:
        """Set the host's approval mode from the next call on; its rules stay."""
        if self._host_mode != PLAN and mode == PLAN:
            self._mode_before_plan = self._host_mode
        self._host_mode = mode
        layers = self._current_layers()
        self._use_layers(replace(layers, host=replace(layers.host, mode=mode)))

    def leave_plan_mode(self) -> None:
        """Return to the mode before; one that only the settings have set gives way to questions about everything."""
        layers = self._current_layers()
        if layers.user.mode == PLAN:
            self._use_layers(replace(layers, user=replace(layers.user, mode="always-ask")))
        if self._host_mode == PLAN:
            self.set_host_mode(self._mode_before_plan)

    def list_session_allowances(self) -> list[KeptAllowance]:
        """The allowances of the open session."""
        return self._kept if self._asking is None else self._asking.list_session_allowances()

    def restore_allowances(self, calls: Sequence[KeptAllowance]) -> None:
        """Restore what an earlier process was allowed in the open session, unless rules now deny it."""
        self._kept = list(calls)
        if self._asking is not None:
            self._asking.allow_calls(calls)

    def current_permissions(self) -> Permissions:
        """The rules and modes in force, by source, and the allowances of the session."""
        from pigeon.permissions.gate import describe_permissions

        return describe_permissions(self._current_layers(), self.list_session_allowances())

    def make_concealment_test(self, tool: str) -> Callable[[str], bool]:
        """A test for real paths that a search of the working directory by this tool must not show under the current
        rules."""
        if self._asking is None or self._layers is None or not self._layers.is_in_force:
            return lambda place: False
        return self._asking.make_concealment_test(tool)

    async def fetch_concealment_test(self, tool: str) -> Callable[[str], bool]:
        """The same where files have to be fetched to know."""
        if self._asking is None or self._layers is None or not self._layers.is_in_force:
            return lambda place: False
        return await self._asking.fetch_concealment_test(tool)

    def _use_layers(self, layers: PermissionLayers) -> None:
        self._layers = layers
        self.plan_state.set_active(any(source.mode == PLAN for source in layers.all_sources))
        if not layers.is_in_force:
            self._gate = self._extending
            return
        if self._asking is None:
            from pigeon.permissions.gate import PermissionGate

            self._asking = PermissionGate(
                layers,
                self._make_protected_places(),
                self._ask,
                self._make_path_resolver,
                self._session_id,
                self._asked_for.unattended,
                self._allowed,
            )
            self._asking.allow_calls(self._kept)
        self._asking.use_rules(layers)
        from pigeon.permissions.gate_chain import chain_gates

        self._gate = chain_gates([gate for gate in (self._asking, self._extending) if gate is not None])

    def make_agent_permissions(
        self, rules: Sequence[Mapping[str, Any]], session: SessionParts, agent: AgentName
    ) -> StartedAgentPermissions:
        """The permissions of an agent that this one has started: all rules here, now and later, and those of its type
        and of the types above it. Its questions name it; what is allowed for the session holds for all agents."""
        return StartedAgentPermissions(self, rules, session, agent)

    def make_agent_gate(
        self, layers: PermissionLayers, session: SessionParts, agent: AgentName, ask: Ask
    ) -> PermissionGate:
        """The gate of a started agent, under these rules."""
        from pigeon.permissions.gate import PermissionGate

        def make_path_resolver() -> PathResolver:
            return self._workspace.make_path_resolver(session.transcript.journal.cwd)

        return PermissionGate(
            layers,
            self._make_protected_places(),
            ask,
            make_path_resolver,
            self._session_id,
            self._asked_for.unattended,
            self._allowed,
            agent.type,
        )

    def make_exit_gate(self, ask: Ask, agent: AgentName) -> Gate:
        """What stands between a started agent and commands outside the sandbox."""
        from pigeon.permissions.sandbox_exit import SandboxExitGate

        return SandboxExitGate(ask, self._timeout_ms, self._asked_for.unattended, agent.type)

    @property
    def layers(self) -> PermissionLayers | None:
        """The rules in force; None as long as there were never any."""
        return self._layers

    @property
    def extending(self) -> Gate | None:
        """The gate of extensions, which comes after the rules."""
        return self._extending

    @property
    def is_walled(self) -> bool:
        return self._walled()

    async def ask_for_agent(
        self, question: PermissionQuestion, timeout_ms: int | None, agent: AgentName
    ) -> PermissionOutcome:
        """Ask the host about a call of a started agent."""
        return await self._ask(question, timeout_ms, agent)

    async def _ask(
        self, question: PermissionQuestion, timeout_ms: int | None, agent: AgentName | None = None
    ) -> PermissionOutcome:
        from pigeon.permissions.gate import outcome_of

        call = question.call
        asked: list[str] = []

        def make_request_with_id(id: str) -> SelectRequest:
            asked.append(id)
            return SelectRequest(
                id=id,
                title=question.title,
                options=list(question.options),
                timeout=ABSENT if timeout_ms is None else timeout_ms,
                tool_call_id=call.id,
                tool_name=call.name,
                args=question.arguments,
                diff=ABSENT if question.diff is None else question.diff,
                agent_id=ABSENT if agent is None else agent.id,
                agent=ABSENT if agent is None else agent.type,
            )

        outcome: PermissionOutcome = "aborted"
        try:
            end = await self._session.dialogs.run_dialog(make_request_with_id, timeout_ms)
            if end.reason != "answered" or end.answer is None:
                outcome = "disconnected" if end.reason == "answered" else end.reason
            elif end.answer.cancelled:
                outcome = "denied"
            else:
                outcome = outcome_of(end.answer.value)
            return outcome
        finally:
            for id in asked:
                self._session.post(PermissionResolved(id=id, tool_call_id=call.id, outcome=outcome))

    def _make_protected_places(self) -> ProtectedPlaces:
        from pigeon.permissions.protected import ProtectedPlaces

        environment, rules = self._environment, self._asked_for.rules
        own = list(self._own)
        if isinstance(rules, str) and not _is_json(rules):
            own.append(environment.absolute_path(rules))
        if self._workspace.is_elsewhere:
            return ProtectedPlaces([], [self._workspace.home], {})
        return ProtectedPlaces(own, environment.homes, environment.variables)

    def _make_path_resolver(self) -> PathResolver:
        return self._workspace.make_path_resolver(self._session.transcript.journal.cwd)

    def _session_id(self) -> str:
        return self._session.transcript.journal.session_id


class AgentName(Struct, frozen=True):
    """A started agent as questions name it: the id of its session, and its type."""

    id: str
    type: str


class StartedAgentPermissions:
    """The permissions of a started agent. It has the interface of `AgentPermissions` that sessions use."""

    def __init__(
        self, root: AgentPermissions, rules: Sequence[Mapping[str, Any]], session: SessionParts, agent: AgentName
    ) -> None:
        self._root = root
        self._rules = rules
        self._session = session
        self._agent = agent
        self._own: tuple[PermissionRules, ...] = ()
        self._gate: PermissionGate | None = None
        self._known: tuple[object, PermissionLayers] | None = None
        self._leaving: Gate | None = None
        # A plan is that of the conversation: only its own agent submits one.
        self.plan_state = PlanState()
        if any(rules):
            from pigeon.permissions.rules import parse_host_rules

            self._own = tuple(parse_host_rules(dict(some), "yolo") for some in rules if some)

    def build_gate(self) -> Gate | None:
        """Returns the gate before the next tool call; None if there are neither rules nor extensions nor a sandbox."""
        gates: list[Gate] = []
        layers = self._current_layers()
        if layers is not None and layers.is_in_force:
            if self._gate is None:
                self._gate = self._root.make_agent_gate(layers, self._session, self._agent, self._ask)
            self._gate.use_rules(layers)
            gates.append(self._gate)
        if self._root.extending is not None:
            gates.append(self._root.extending)
        if self._root.is_walled:
            self._leaving = self._leaving or self._root.make_exit_gate(self._ask, self._agent)
            gates.append(self._leaving)
        if not gates:
            return None
        from pigeon.permissions.gate_chain import chain_gates

        return chain_gates(gates)

    def _current_layers(self) -> PermissionLayers | None:
        root = self._root.layers
        if not self._own:
            return root
        if self._known is None or self._known[0] is not root:
            from pigeon.permissions.rules import PermissionLayers

            self._known = (root, replace(root or PermissionLayers(), agent=self._own))
        return self._known[1]

    async def _ask(self, question: PermissionQuestion, timeout_ms: int | None) -> PermissionOutcome:
        return await self._root.ask_for_agent(question, timeout_ms, self._agent)

    def set_host_rules(self, rules: Json) -> None:
        self._root.set_host_rules(rules)

    def set_host_mode(self, mode: ApprovalMode) -> None:
        self._root.set_host_mode(mode)

    def list_session_allowances(self) -> list[KeptAllowance]:
        return self._root.list_session_allowances()

    def restore_allowances(self, calls: Sequence[KeptAllowance]) -> None:
        self._root.restore_allowances(calls)

    def current_permissions(self) -> Permissions:
        return self._root.current_permissions()

    def leave_plan_mode(self) -> None:
        """Does nothing: only the conversation leaves the mode."""


def _is_json(given: str) -> bool:
    return given.lstrip()[:1] in ("{", "[", '"')


def _read_host_value(given: str | Mapping[str, Any], environment: Environment) -> Any:
    """The rules in an option, as JSON or as the path of a file; raises `Refusal`."""
    if not isinstance(given, str):
        return dict(given)
    if _is_json(given):
        return decode_with_comments(given.encode("utf-8", "replace"))
    try:
        return read_json(environment.absolute_path(given))
    except OSError as error:
        raise Refusal(f"{given} cannot be read: {error.strerror or error}") from error
    except BadRecord as error:
        raise Refusal(f"{given} cannot be used: {error}") from error
