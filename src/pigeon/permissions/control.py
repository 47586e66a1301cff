"""The permission rules of an agent: those of the settings and of the host, and the gate that they make.

As long as no rule says anything there is no gate, and nothing of `guard/rules` is imported; `set_permissions` can make
one at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pigeon.agent.interfaces import Gate
from pigeon.app.environment import Environment
from pigeon.app.options import AgentOptions
from pigeon.app.reports import Reports
from pigeon.config.json_file import decode_with_comments, read_json
from pigeon.config.layers import Layers
from pigeon.session.context.transcript import Transcript
from pigeon.session.host.dialogs import Dialogs
from pigeon.system.paths import PathResolver
from pigeon.wire.answers import ApprovalMode, Permissions, SessionAllowance
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.dialogs import SelectRequest
from pigeon.wire.errors import BadRecord, Refusal, StartupError
from pigeon.wire.events import Outbound, PermissionOutcome, PermissionResolved

if TYPE_CHECKING:
    from pigeon.permissions.gate import PermissionGate, PermissionQuestion
    from pigeon.permissions.protected import ProtectedPlaces
    from pigeon.permissions.rules import PermissionLayers, PermissionRules


class PermissionSetup:
    """What stands before the tool calls of one agent; `gate` is asked anew for each call.

    `own` are the absolute paths of the agent's folder and of its extensions, which a model must not write unless a rule
    names them. `extending` is the gate of extensions, which is asked after the rules. `walled` says whether there is a
    sandbox: then a last gate asks about what is to run outside.
    """

    def __init__(
        self,
        options: AgentOptions,
        environment: Environment,
        own: Sequence[str],
        transcript: Transcript,
        dialogs: Dialogs,
        post: Callable[[Outbound], None],
        extending: Gate | None,
        walled: Callable[[], bool],
    ) -> None:
        self._options = options
        self._environment = environment
        self._own = own
        self._transcript = transcript
        self._dialogs = dialogs
        self._post = post
        self._host_mode: ApprovalMode = options.approval_mode
        self._extending = extending
        self._walled = walled
        self._leaving: Gate | None = None
        self._layers: PermissionLayers | None = None
        self._asking: PermissionGate | None = None
        # What waits for a gate: there is none before there are rules.
        self._kept: list[SessionAllowance] = []
        self._gate = extending

    def gate(self) -> Gate | None:
        """What stands before the next tool call; none if there are neither rules nor extensions nor a sandbox."""
        if not self._walled():
            return self._gate
        from pigeon.permissions.gate_chain import chain
        from pigeon.permissions.sandbox_exit import SandboxExitGate

        if self._leaving is None:
            self._leaving = SandboxExitGate(self._ask, self._timeout_ms, self._options.unattended)
        return self._leaving if self._gate is None else chain([self._gate, self._leaving])

    def _timeout_ms(self) -> int:
        from pigeon.permissions.rules import PermissionLayers

        return (self._layers or PermissionLayers()).timeout_ms

    def read(self, settings: Layers, known: Iterable[str], reports: Reports) -> None:
        """Take the rules of the settings, again if they have changed, and the first time those of the options.

        What is wrong in settings is reported, and so are rules for tools that are not `known` now. Options that cannot
        be followed raise `StartupError`.
        """
        options, mode = self._options, settings.settings.tools.approval_mode
        given = (settings.user_permissions, settings.project_permissions, options.permissions)
        silent = mode == options.approval_mode == "yolo" and given == (None, None, None) and not settings.doubts
        if silent and self._layers is None:
            return
        from pigeon.permissions.rules import rules_of, unknown_tools

        layers = rules_of(given[0], given[1], mode, reports.closed, settings.doubts)
        layers = replace(layers, host=self._host_rules() if self._layers is None else self._layers.host)
        for problem in unknown_tools(layers, known):
            reports.at_start(problem)
        self._use(layers)

    def _host_rules(self) -> PermissionRules:
        from pigeon.permissions.rules import host_rules

        given = self._options.permissions
        try:
            value = {} if given is None else _host_value(given, self._environment)
            return host_rules(value, self._options.approval_mode)
        except Refusal as problem:
            raise StartupError(f"--permissions: {problem}") from problem

    def set_host_rules(self, rules: Json) -> None:
        """Replace the rules of the host, from the next call on; raises `Refusal`. The approval mode stays."""
        from pigeon.permissions.rules import PermissionLayers, host_rules

        host = host_rules(rules, self._host_mode)
        self._use(replace(self._layers or PermissionLayers(), host=host))

    def set_host_mode(self, mode: ApprovalMode) -> None:
        """Take this approval mode for the host, from the next call on; its rules stay."""
        from pigeon.permissions.rules import PermissionLayers

        self._host_mode = mode
        layers = self._layers or PermissionLayers()
        self._use(replace(layers, host=replace(layers.host, mode=mode)))

    def allowed(self) -> list[SessionAllowance]:
        """What was allowed for the session that is open."""
        return self._kept if self._asking is None else self._asking.allowed()

    def allow(self, calls: Sequence[SessionAllowance]) -> None:
        """An earlier process was allowed this in the session that is open: so is this one, unless rules deny it."""
        self._kept = list(calls)
        if self._asking is not None:
            self._asking.allow(calls)

    def in_force(self) -> Permissions:
        """What is in force, source by source, and what was allowed for the session."""
        from pigeon.permissions.gate import described
        from pigeon.permissions.rules import PermissionLayers

        return described(self._layers or PermissionLayers(), self.allowed())

    def concealment(self, tool: str) -> Callable[[str], bool]:
        """A test for real paths that a search of the working directory by this tool must not show, as the rules are."""
        if self._asking is None or self._layers is None or not self._layers.in_force:
            return lambda place: False
        return self._asking.concealment(tool)

    def _use(self, layers: PermissionLayers) -> None:
        self._layers = layers
        if not layers.in_force:
            self._gate = self._extending
            return
        if self._asking is None:
            from pigeon.permissions.gate import PermissionGate

            self._asking = PermissionGate(
                layers, self._protected_places(), self._ask, self._paths, self._session_id, self._options.unattended
            )
            self._asking.allow(self._kept)
        self._asking.use(layers)
        from pigeon.permissions.gate_chain import chain

        self._gate = chain([gate for gate in (self._asking, self._extending) if gate is not None])

    async def _ask(self, question: PermissionQuestion, timeout_ms: int) -> PermissionOutcome:
        from pigeon.permissions.gate import outcome_of

        call = question.call
        asked: list[str] = []

        def request(id: str) -> SelectRequest:
            asked.append(id)
            return SelectRequest(
                id=id,
                title=question.title,
                options=list(question.options),
                timeout=timeout_ms,
                tool_call_id=call.id,
                tool_name=call.name,
                args=question.arguments,
                diff=ABSENT if question.diff is None else question.diff,
            )

        outcome: PermissionOutcome = "aborted"
        try:
            end = await self._dialogs.asked(request, timeout_ms)
            if end.reason != "answered" or end.answer is None:
                outcome = "disconnected" if end.reason == "answered" else end.reason
            elif end.answer.cancelled:
                outcome = "denied"
            else:
                outcome = outcome_of(end.answer.value)
            return outcome
        finally:
            for id in asked:
                self._post(PermissionResolved(id=id, tool_call_id=call.id, outcome=outcome))

    def _protected_places(self) -> ProtectedPlaces:
        from pigeon.permissions.protected import ProtectedPlaces

        environment, rules = self._environment, self._options.permissions
        own = list(self._own)
        if isinstance(rules, str) and not _is_json(rules):
            own.append(environment.absolute(rules))
        return ProtectedPlaces(own, environment.homes, environment.variables)

    def _paths(self) -> PathResolver:
        return PathResolver(self._transcript.journal.cwd, self._environment.home)

    def _session_id(self) -> str:
        return self._transcript.journal.session_id


def _is_json(given: str) -> bool:
    return given.lstrip()[:1] in ("{", "[", '"')


def _host_value(given: str | Mapping[str, Any], environment: Environment) -> Any:
    """The rules as an option gives them: as JSON, or in a file; raises `Refusal`."""
    if not isinstance(given, str):
        return dict(given)
    if _is_json(given):
        return decode_with_comments(given.encode("utf-8", "replace"))
    try:
        return read_json(environment.absolute(given))
    except OSError as error:
        raise Refusal(f"{given} cannot be read: {error.strerror or error}") from error
    except BadRecord as error:
        raise Refusal(f"{given} cannot be used: {error}") from error
