"""Version 1 of the protocol, with its experimental parts: forks, titles, text for the system prompt."""

from __future__ import annotations

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
)
from pigeon.frontends.acp.editions.tool_views import (
    DiffPiece,
    TerminalPiece,
    ToolPiece,
    ToolView,
    fence_text,
    text_block,
)
from pigeon.frontends.acp.incoming import ClientFiles
from pigeon.wire.base import Json
from pigeon.wire.commands import SetHostServices

CHUNKS = {"user": "user_message_chunk", "agent": "agent_message_chunk", "thought": "agent_thought_chunk"}


class EditionOne(Edition):
    """A prompt is answered when its run has ended; the client may have files and terminals."""

    version = 1
    has_terminals = False

    def initialization_result(self, version: str) -> dict[str, Json]:
        return {
            "protocolVersion": 1,
            "agentInfo": {"name": "pigeon", "title": "Pigeon", "version": version},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    "list": {},
                    "delete": {},
                    "additionalDirectories": {},
                    "resume": {},
                    "close": {},
                    "fork": {},
                    "title": {},
                    "status": {},
                    "systemPrompt": {"mode": {"override": {}}},
                },
                "auth": {"logout": {}, "status": {}},
            },
            "authMethods": [
                {"id": method.id, "name": method.name, "description": method.description}
                | ({"type": "terminal", "args": list(method.args), "env": {}} if method.args else {})
                for method in auth_methods(self._can_set_up_in_terminal)
            ],
        }

    def host_services(self) -> SetHostServices:
        """Files and terminals, as far as the client offers them."""
        files = self.client.fs or ClientFiles()
        return SetHostServices(
            read_files=files.read_text_file,
            write_files=files.write_text_file,
            run_commands=self.client.terminal,
            tell_changes=True,
        )

    def session_result(self, start: SessionStart) -> dict[str, Json]:
        """With modes and models in addition to options, for clients that only know those; commands follow as an update.

        `models` was never more than an experiment, which ended in favour of options; clients of that time need it.
        """
        mode, model = (next(one for one in start.options if one.category == kind) for kind in ("mode", "model"))
        modes, models = (
            [{key: choice.value, "name": choice.name, "description": choice.description} for choice in option.choices]
            for option, key in ((mode, "id"), (model, "modelId"))
        )
        return {
            **({} if start.session_id is None else {"sessionId": start.session_id}),
            "modes": {"currentModeId": mode.current, "availableModes": modes},
            "models": {"currentModelId": model.current, "availableModels": models},
            "configOptions": self.option_records(start.options),
        }

    def option_records(self, options: Sequence[ConfigOption]) -> list[Json]:
        return [option_members(option, "id") for option in options]

    def permission_params(self, view: ToolView, title: str, options: list[Json]) -> dict[str, Json]:
        """The question is the tool call itself; its title is the whole question."""
        call = {name: value for name, value in self.tool_call_updates(view)[0].items() if name != "sessionUpdate"}
        return {"toolCall": {**call, "title": title}, "options": options}

    def chunk_updates(self, speaker: Speaker, message_id: str, block: dict[str, Json]) -> list[Update]:
        return [make_update(CHUNKS[speaker], messageId=message_id, content=block)]

    def user_message_updates(self, message_id: str, blocks: list[dict[str, Json]]) -> list[Update]:
        """The client shows what it has sent itself."""
        return []

    def tool_call_updates(self, view: ToolView) -> list[Update]:
        """The first view of a call has an update of its own, which needs a title."""
        content = None if view.content is None else [_piece_record(piece) for piece in view.content]
        return [
            make_update(
                "tool_call" if view.begun else "tool_call_update",
                toolCallId=view.call_id,
                name=view.name,
                title=view.title or (view.name or "tool" if view.begun else None),
                kind=view.kind,
                # This version has no status for a call that was stopped.
                status="failed" if view.status == "cancelled" else view.status,
                content=content,
                locations=None if view.locations is None else locations_of(view),
                rawInput=view.raw_input,
                rawOutput=view.raw_output,
            )
        ]

    def command_output_updates(
        self, call_id: str, command: str | None, cwd: str, text: str, before: str
    ) -> list[Update]:
        """The content of the call is what was printed so far."""
        content = [{"type": "content", "content": text_block(fence_text(text))}] if text else []
        return [make_update("tool_call_update", toolCallId=call_id, content=content)]

    def command_end_updates(self, call_id: str, code: int | None) -> list[Update]:
        """Nothing: the end of the call shows it."""
        return []

    def plan_updates(self, tasks: Sequence[PlanTask]) -> list[Update]:
        """The plan, without cancelled tasks."""
        return [make_update("plan", entries=[plan_entry(task) for task in tasks if task.status != "cancelled"])]

    def option_updates(self, options: Sequence[ConfigOption], mode_changed: bool) -> list[Update]:
        """The options, and the mode again in its own update."""
        updates = [make_update("config_option_update", configOptions=self.option_records(options))]
        if mode_changed:
            mode = next(option for option in options if option.category == "mode")
            updates.append(make_update("current_mode_update", currentModeId=mode.current))
        return updates

    def state_updates(self, state: Literal["running", "requires_action"]) -> list[Update]:
        """Nothing: the prompt's open request shows it."""
        return []

    def idle_updates(self, end: PromptEnd | None) -> list[Update]:
        """Nothing: the answer to the prompt shows it."""
        return []

    def notice_updates(self, severity: str, title: str) -> list[Update]:
        """For clients that know notices."""
        if self.client.session is None or self.client.session.notices is None:
            return []
        return [make_update("notice", severity=severity, title=title)]

    def compaction_updates(self, id: str, status: str, summary: str | None, error: str | None) -> list[Update]:
        """For clients that know compactions."""
        if self.client.session is None or self.client.session.compaction is None:
            return []
        return [compaction_update(id, status, summary, error)]

    def _command_record(self, command: CommandView) -> dict[str, Json]:
        hint = {} if command.hint is None else {"input": {"hint": command.hint}}
        return {"name": command.name, "description": command.description, **hint}


def compaction_update(id: str, status: str, summary: str | None, error: str | None) -> Update:
    blocks = None if summary is None else [text_block(summary)]
    return make_update("compaction_update", compactionId=id, status=status, summary=blocks, error=error)


def plan_entry(task: PlanTask) -> dict[str, Json]:
    """Our plans have no priorities."""
    return {"content": task.content, "priority": "medium", "status": task.status}


def locations_of(view: ToolView) -> list[Json]:
    return [
        {"path": place.path, **({} if place.line is None else {"line": place.line})} for place in view.locations or ()
    ]


def _piece_record(piece: ToolPiece) -> dict[str, Json]:
    if isinstance(piece, DiffPiece):
        return {"type": "diff", "path": piece.path, "oldText": piece.old, "newText": piece.new}
    if isinstance(piece, TerminalPiece):
        return {"type": "terminal", "terminalId": piece.terminal_id}
    return {"type": "content", "content": piece.block}
