"""The draft of version 2: prompts are answered when accepted, states are sent as updates, terminals are the agent's."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Literal

from pigeon.frontends.acp.editions.auth_methods import auth_methods
from pigeon.frontends.acp.editions.edition import (
    CommandView,
    ConfigOption,
    Edition,
    PlanTask,
    PromptEnd,
    SessionStart,
    Speaker,
    Update,
    option_members,
    update_of,
    usage_member,
)
from pigeon.frontends.acp.editions.tool_views import DiffPiece, TerminalPiece, ToolPiece, ToolView
from pigeon.frontends.acp.editions.version_1 import CHUNKS, compaction_update, locations_of, plan_entry
from pigeon.wire.base import Json
from pigeon.wire.commands import SetHostServices

PLAN = "plan"
ENDED = ("completed", "failed", "cancelled")


class EditionTwo(Edition):
    """Everything about a tool call is one kind of update, and so is all about a terminal."""

    version = 2
    has_terminals = True

    def welcome(self, version: str) -> dict[str, Json]:
        """Capabilities are objects that are present or absent."""
        return {
            "protocolVersion": 2,
            "info": {"name": "pigeon", "title": "Pigeon", "version": version},
            "capabilities": {
                "session": {
                    "prompt": {"image": {}, "embeddedContext": {}},
                    "mcp": {"stdio": {}, "http": {}},
                    "delete": {},
                    "additionalDirectories": {},
                    "fork": {},
                    "title": {},
                    "status": {},
                    "systemPrompt": {"mode": {"override": {}}},
                },
                "auth": {"status": {}},
            },
            "authMethods": [
                {"methodId": method.id, "name": method.name, "description": method.description}
                | ({"type": "terminal", "args": list(method.args)} if method.args else {"type": "agent"})
                for method in auth_methods(self._sets_up_in_terminal)
            ],
        }

    def services(self) -> SetHostServices:
        """Files and terminals are the agent's own."""
        return SetHostServices(tell_changes=True)

    def started(self, start: SessionStart) -> dict[str, Json]:
        """With the commands."""
        return {
            **({} if start.session_id is None else {"sessionId": start.session_id}),
            "configOptions": self.options(start.options),
            "availableCommands": [self._command(one) for one in start.commands],
        }

    def options(self, options: Sequence[ConfigOption]) -> list[Json]:
        """The id of an option is its `configId`."""
        return [option_members(option, "configId") for option in options]

    def permission(self, view: ToolView, title: str, options: list[Json]) -> dict[str, Json]:
        """The question has a title of its own, and the tool call as its subject."""
        call = {name: value for name, value in self.tool_call(view)[0].items() if name != "sessionUpdate"}
        return {"title": title, "subject": {"type": "tool_call", "toolCall": call}, "options": options}

    def chunk(self, speaker: Speaker, message_id: str, block: dict[str, Json]) -> list[Update]:
        """Every piece is a chunk."""
        return [update_of(CHUNKS[speaker], messageId=message_id, content=block)]

    def said(self, message_id: str, blocks: list[dict[str, Json]]) -> list[Update]:
        """The message as it was sent."""
        return [update_of("user_message", messageId=message_id, content=blocks)]

    def tool_call(self, view: ToolView) -> list[Update]:
        """Only what has changed; a call can be cancelled until it has ended."""
        update = update_of(
            "tool_call_update",
            toolCallId=view.call_id,
            name=view.name,
            title=view.title,
            kind=view.kind,
            status=view.status,
            content=None if view.content is None else [_piece(piece) for piece in view.content],
            locations=None if view.locations is None else locations_of(view),
            rawInput=view.raw_input,
            rawOutput=view.raw_output,
        )
        if view.status == "in_progress":
            update["capabilities"] = {"cancel": {}}
        elif view.status in ENDED:
            update["capabilities"] = None
        return [update]

    def command_output(self, call_id: str, command: str | None, cwd: str, text: str, before: str) -> list[Update]:
        """The terminal of a call has the id of the call; what was printed since is a chunk."""
        updates: list[Update] = []
        if command is not None:
            terminal = {"type": "terminal", "terminalId": call_id}
            made = update_of("terminal_update", terminalId=call_id, command=command, cwd=cwd)
            updates.append({**made, "capabilities": {"cancel": {}}})
            updates.append(update_of("tool_call_update", toolCallId=call_id, content=[terminal]))
        if text.startswith(before):
            if len(text) > len(before):
                data = _encoded(text[len(before) :])
                updates.append(update_of("terminal_output_chunk", terminalId=call_id, data=data))
        else:
            updates.append(update_of("terminal_update", terminalId=call_id, output={"data": _encoded(text)}))
        return updates

    def command_ended(self, call_id: str, code: int | None) -> list[Update]:
        """A terminal that has ended says so itself."""
        status: dict[str, Json] = {} if code is None else {"exitCode": code}
        return [{**update_of("terminal_update", terminalId=call_id, exitStatus=status), "capabilities": None}]

    def plan(self, tasks: Sequence[PlanTask]) -> list[Update]:
        """One plan."""
        entries = [plan_entry(task) for task in tasks]
        return [update_of("plan_update", plan={"type": "items", "planId": PLAN, "entries": entries})]

    def options_changed(self, options: Sequence[ConfigOption], mode_changed: bool) -> list[Update]:
        """All options."""
        return [update_of("config_option_update", configOptions=self.options(options))]

    def state(self, state: Literal["running", "requires_action"]) -> list[Update]:
        """The state; Pigeon has no background work."""
        return [update_of("state_update", state=state)]

    def idle(self, end: PromptEnd | None) -> list[Update]:
        """With the reason, if something ended."""
        if end is None:
            return [update_of("state_update", state="idle")]
        usage = usage_member(end.usage)
        if end.error is not None:
            return [update_of("state_update", state="idle", stopReason="error", error=end.error.record(), **usage)]
        return [update_of("state_update", state="idle", stopReason=end.stop, **usage)]

    def notice(self, severity: str, title: str) -> list[Update]:
        """Every client may get one."""
        return [update_of("notice", severity=severity, title=title)]

    def compaction(self, id: str, status: str, summary: str | None, error: str | None) -> list[Update]:
        """Every client may get one."""
        return [compaction_update(id, status, summary, error)]

    def _command(self, command: CommandView) -> dict[str, Json]:
        """Input is one text."""
        hint = {} if command.hint is None else {"input": {"type": "text", "hint": command.hint}}
        return {"type": "command", "name": command.name, "description": command.description, **hint}


def _encoded(text: str) -> str:
    return b64encode(text.encode("utf-8", "replace")).decode()


def _piece(piece: ToolPiece) -> dict[str, Json]:
    if isinstance(piece, DiffPiece):
        operation = "add" if piece.old is None else "modify"
        diff: dict[str, Json] = {
            "type": "diff",
            "changes": [{"operation": operation, "path": piece.path, "fileType": "text"}],
        }
        if piece.patch is not None:
            diff["patch"] = {"format": "git_patch", "text": piece.patch}
        return diff
    if isinstance(piece, TerminalPiece):
        return {"type": "terminal", "terminalId": piece.terminal_id}
    return {"type": "content", "content": piece.block}
