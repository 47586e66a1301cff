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
    make_update,
    option_members,
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

    def initialization_result(self, version: str) -> dict[str, Json]:
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
                for method in auth_methods(self._can_set_up_in_terminal)
            ],
        }

    def host_services(self) -> SetHostServices:
        """Files and terminals are the agent's own."""
        return SetHostServices(tell_changes=True)

    def session_result(self, start: SessionStart) -> dict[str, Json]:
        return {
            **({} if start.session_id is None else {"sessionId": start.session_id}),
            "configOptions": self.option_records(start.options),
            "availableCommands": [self._command_record(one) for one in start.commands],
        }

    def option_records(self, options: Sequence[ConfigOption]) -> list[Json]:
        return [option_members(option, "configId") for option in options]

    def permission_params(self, view: ToolView, title: str, options: list[Json]) -> dict[str, Json]:
        """The question has a title of its own, and the tool call as its subject."""
        call = {name: value for name, value in self.tool_call_updates(view)[0].items() if name != "sessionUpdate"}
        return {"title": title, "subject": {"type": "tool_call", "toolCall": call}, "options": options}

    def chunk_updates(self, speaker: Speaker, message_id: str, block: dict[str, Json]) -> list[Update]:
        return [make_update(CHUNKS[speaker], messageId=message_id, content=block)]

    def user_message_updates(self, message_id: str, blocks: list[dict[str, Json]]) -> list[Update]:
        return [make_update("user_message", messageId=message_id, content=blocks)]

    def tool_call_updates(self, view: ToolView) -> list[Update]:
        """Only what has changed; a call can be cancelled until it has ended."""
        update = make_update(
            "tool_call_update",
            toolCallId=view.call_id,
            name=view.name,
            title=view.title,
            kind=view.kind,
            status=view.status,
            content=None if view.content is None else [_piece_record(piece) for piece in view.content],
            locations=None if view.locations is None else locations_of(view),
            rawInput=view.raw_input,
            rawOutput=view.raw_output,
        )
        if view.status == "in_progress":
            update["capabilities"] = {"cancel": {}}
        elif view.status in ENDED:
            update["capabilities"] = None
        return [update]

    def command_output_updates(
        self, call_id: str, command: str | None, cwd: str, text: str, before: str
    ) -> list[Update]:
        """The terminal of a call has the id of the call; what was printed since is a chunk."""
        updates: list[Update] = []
        if command is not None:
            terminal = {"type": "terminal", "terminalId": call_id}
            made = make_update("terminal_update", terminalId=call_id, command=command, cwd=cwd)
            updates.append({**made, "capabilities": {"cancel": {}}})
            updates.append(make_update("tool_call_update", toolCallId=call_id, content=[terminal]))
        if text.startswith(before):
            if len(text) > len(before):
                data = _encode_base64(text[len(before) :])
                updates.append(make_update("terminal_output_chunk", terminalId=call_id, data=data))
        else:
            updates.append(make_update("terminal_update", terminalId=call_id, output={"data": _encode_base64(text)}))
        return updates

    def command_end_updates(self, call_id: str, code: int | None) -> list[Update]:
        """The terminal update itself reports the end."""
        status: dict[str, Json] = {} if code is None else {"exitCode": code}
        return [{**make_update("terminal_update", terminalId=call_id, exitStatus=status), "capabilities": None}]

    def plan_updates(self, tasks: Sequence[PlanTask]) -> list[Update]:
        entries = [plan_entry(task) for task in tasks]
        return [make_update("plan_update", plan={"type": "items", "planId": PLAN, "entries": entries})]

    def option_updates(self, options: Sequence[ConfigOption], mode_changed: bool) -> list[Update]:
        return [make_update("config_option_update", configOptions=self.option_records(options))]

    def state_updates(self, state: Literal["running", "requires_action"]) -> list[Update]:
        """The state; Pigeon has no background work."""
        return [make_update("state_update", state=state)]

    def idle_updates(self, end: PromptEnd | None) -> list[Update]:
        """With the stop reason, if a prompt has ended."""
        if end is None:
            return [make_update("state_update", state="idle")]
        usage = usage_member(end.usage)
        if end.error is not None:
            return [make_update("state_update", state="idle", stopReason="error", error=end.error.to_record(), **usage)]
        return [make_update("state_update", state="idle", stopReason=end.stop, **usage)]

    def notice_updates(self, severity: str, title: str) -> list[Update]:
        return [make_update("notice", severity=severity, title=title)]

    def compaction_updates(self, id: str, status: str, summary: str | None, error: str | None) -> list[Update]:
        return [compaction_update(id, status, summary, error)]

    def _command_record(self, command: CommandView) -> dict[str, Json]:
        hint = {} if command.hint is None else {"input": {"type": "text", "hint": command.hint}}
        return {"type": "command", "name": command.name, "description": command.description, **hint}


def _encode_base64(text: str) -> str:
    return b64encode(text.encode("utf-8", "replace")).decode()


def _piece_record(piece: ToolPiece) -> dict[str, Json]:
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
