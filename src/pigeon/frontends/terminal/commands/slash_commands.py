"""The slash commands of the chat: a table of names, descriptions and methods.

A name that is not in the table belongs to the agent (a skill, a template, an extension) and is sent to it unchanged; if
the agent does not know it either, the error suggests the nearest name.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable

from msgspec import Struct

from pigeon.frontends.terminal.blocks import AnswerText, Notice, ToolCard
from pigeon.frontends.terminal.clipboard import Clipboard
from pigeon.frontends.terminal.commands.agent_commands import AgentCommands
from pigeon.frontends.terminal.commands.session_commands import SessionCommands
from pigeon.frontends.terminal.commands.undo_commands import UndoCommands
from pigeon.frontends.terminal.content.tool_details import format_count
from pigeon.frontends.terminal.footer import FooterFacts
from pigeon.frontends.terminal.view import Choice, ChoiceQuestion, View
from pigeon.sdk.conversation import Conversation
from pigeon.wire.answers import Permissions
from pigeon.wire.base import value_or_default
from pigeon.wire.choices import PLAN, ApprovalMode
from pigeon.wire.content import ToolCall

KEYS = """
| key | |
|---|---|
| Enter | send; while the agent works: send at its next break |
| Alt-Enter | while the agent works: send when the work is done; otherwise a new line |
| Ctrl-J, or `\\` and Enter | a new line |
| Esc, Ctrl-C | decline a question, stop the agent |
| Ctrl-C twice, Ctrl-D | leave |
| Tab | complete a command or a file name |
| Up, Down | your previous messages |
| Ctrl-R | search your previous messages |
| Alt-Up | take back the last queued message |
| Ctrl-G | write in your editor |
| Ctrl-V | attach the image in the clipboard |
| Ctrl-P, Shift-Tab | next model, next thinking level |
| Ctrl-B | let the running command go on in the background |
| Ctrl-T | show or hide thinking |
| Ctrl-O | show the whole output of the last tool |
| Ctrl-Z | suspend; `fg` resumes |
"""
PLANS_FIRST = "Plan mode: nothing changes until you accept a plan of the model. /plan again leaves the mode"
DEFAULTS = (
    Choice("ask", "Ask before every tool that no rule allows"),
    Choice("allow", "Ask only where a rule says so"),
    Choice("deny", "Deny everything that no rule allows"),
)


class CommandRow(Struct, frozen=True):
    """One row; `argument` is shown behind the name if the command takes one."""

    name: str
    about: str
    run: Callable[[str], Awaitable[None]]
    argument: str = ""


class SlashCommands:
    """The table of commands, and the dispatch of a line."""

    def __init__(  # noqa: PLR0913 - the parts of a chat
        self,
        *,
        conversation: Conversation,
        view: View,
        facts: FooterFacts,
        update_facts: Callable[[], Awaitable[None]],
        attach: Callable[[str], None],
        names: dict[str, str],
        arguments: dict[str, list[str]],
        clipboard: Clipboard,
        renew: Callable[[str], Awaitable[bool]],
        running_command: Callable[[], ToolCard | None],
    ) -> None:
        self._conversation = conversation
        self._view = view
        self._facts = facts
        self._renew = renew
        self._update_facts = update_facts
        self._attach = attach
        self._clipboard = clipboard
        sessions = SessionCommands(conversation, view, facts, update_facts)
        agents = self.agents = AgentCommands(conversation, view, running_command)
        self._sessions = sessions
        rows = (
            CommandRow("model", "choose the model", self._choose_model, "[name]"),
            CommandRow("thinking", "choose the thinking level", self._choose_thinking, "[level]"),
            CommandRow("new", "start a new conversation", sessions.start_new),
            CommandRow("resume", "continue another conversation", sessions.choose_and_resume),
            CommandRow("tree", "go to another point in this conversation", sessions.navigate_tree),
            CommandRow("fork", "branch off into a new conversation before one of your messages", sessions.fork),
            CommandRow("name", "name the conversation", sessions.rename, "[name]"),
            CommandRow(
                "compact", "replace older messages with a summary, to free context", self._compact, "[what matters]"
            ),
            CommandRow("export", "write the conversation as an HTML page", sessions.export, "[file]"),
            CommandRow("copy", "copy the last answer", self._copy_answer),
            CommandRow("image", "attach an image to the next message", self._attach_image, "file"),
            CommandRow("cost", "show tokens and cost", self._show_cost),
            CommandRow("permissions", "show and change what tools may do", self._choose_permissions),
            CommandRow("plan", "let the model plan first and change nothing, or no longer", self._toggle_plan_mode),
            *_make_undo_rows(UndoCommands(conversation, view)),
            CommandRow("agents", "look at agents, send them messages, stop them", agents.choose_agent),
            CommandRow("jobs", "look at what runs in the background, and stop it", agents.choose_job),
            CommandRow("background", "let the running command go on in the background", agents.send_to_background),
            CommandRow("trust", "trust this folder: use its extensions and settings", self._decide_trust),
            CommandRow("help", "show keys and commands", self._show_help),
            CommandRow("quit", "leave", self._quit),
        )
        self._table = {row.name: row for row in rows}
        self._table["exit"] = self._table["quit"]
        # Shared with the completion of the input.
        self._names = names
        self._arguments = arguments
        self._names.update({row.name: row.about for row in rows})
        self._mode_before_plan: ApprovalMode = "yolo"
        self._of_agent: dict[str, str] = {}

    async def load_commands(self) -> None:
        """Load the commands of the agent: skills, templates and extensions."""
        found = (await self._conversation.get_commands()).commands
        self._of_agent = {one.name: value_or_default(one.description, "") for one in found}
        for name, about in self._of_agent.items():
            self._names.setdefault(name, about)
        models = (await self._conversation.get_available_models()).models
        self._arguments["model"] = [f"{one.provider}/{one.id}" for one in models]
        self._arguments["thinking"] = list((await self._conversation.get_available_thinking_levels()).levels)

    async def try_run(self, line: str) -> bool:
        """Run a line that begins with a slash; returns False if it is for the agent."""
        name, _, rest = line[1:].strip().partition(" ")
        row = self._table.get(name)
        if row is not None:
            await row.run(rest.strip())
            return True
        if name in self._of_agent or "/" in name or not name:
            return False
        await self.load_commands()
        # Prompts of tool servers may not be known yet: the agent waits for the server, or reports that there is none.
        if name in self._of_agent or name.startswith("mcp__"):
            return False
        near = difflib.get_close_matches(name, self._names, 1)
        meant = f"did you mean /{near[0]}?" if near else "/help lists the commands."
        self._view.show(Notice(f"There is no command /{name}: {meant} Nothing was sent.", "error"))
        self._view.set_input(line)
        return True

    async def choose_and_resume(self) -> None:
        """Choose a conversation to continue."""
        await self._sessions.choose_and_resume("")

    async def show_recent_messages(self, on_open: Callable[[ToolCall], None] | None = None) -> bool:
        return await self._sessions.show_recent_messages(on_open)

    async def _show_help(self, rest: str) -> None:
        shown = [
            f"| `/{row.name}{' ' + row.argument if row.argument else ''}` | {row.about} |"
            for row in self._table.values()
        ]
        own = list(dict.fromkeys(shown))
        agent = [f"| `/{name}` | {about} |" for name, about in self._of_agent.items()]
        rows = "\n".join([*own, *agent])
        marks = "`@file` refers to a file, `!command` runs a command for you and the model, `!!command` only for you."
        self._view.show(AnswerText(f"| command | |\n|---|---|\n{rows}\n\n{KEYS}\n{marks}"))

    async def _choose_model(self, rest: str) -> None:
        models = (await self._conversation.get_available_models()).models
        names = [f"{one.provider}/{one.id}" for one in models]
        fitting = [name for name in names if rest.lower() in name.lower()]
        chosen = next((name for name in names if rest in (name, name.partition("/")[2])), None)
        if chosen is None and rest and len(fitting) == 1:
            chosen = fitting[0]
        if chosen is None:
            if rest and not fitting:
                self._view.show(
                    Notice(f'No model with a key is called "{rest}". /model lists the ones you can use.', "error")
                )
                return
            choices = [
                Choice(name, name, hint=one.name) for name, one in zip(names, models, strict=True) if name in fitting
            ]
            chosen = await self._view.ask(
                ChoiceQuestion("Which model?", choices, search=True, chosen=self._facts.model)
            )
        if chosen is not None:
            provider, _, id = chosen.partition("/")
            await self._conversation.set_model(provider, id)
            await self._update_facts()
            self._view.show(Notice(f"Model: {chosen}", "faint"))

    async def _choose_thinking(self, rest: str) -> None:
        levels = (await self._conversation.get_available_thinking_levels()).levels
        level: str | None = rest
        if rest not in levels:
            if rest:
                self._view.show(
                    Notice(f'This model has no level "{rest}"; choose one of {", ".join(levels)}.', "error")
                )
            choices = [Choice(one, one, hint="now" if one == self._facts.thinking else "") for one in levels]
            level = await self._view.ask(
                ChoiceQuestion("Which thinking level?", choices, search=True, chosen=self._facts.thinking)
            )
        if level is not None:
            await self._conversation.set_thinking_level(level)  # type: ignore[arg-type]
            await self._update_facts()

    async def _compact(self, rest: str) -> None:
        await self._conversation.compact(custom_instructions=rest or None)

    async def _copy_answer(self, rest: str) -> None:
        text = (await self._conversation.get_last_assistant_text()).text
        if not text:
            self._view.show(Notice("There is no answer to copy yet", "warning"))
            return
        if await self._clipboard.copy_text(text):
            self._view.show(Notice("Copied", "faint"))
        else:
            self._view.show(
                Notice("It is too long for this terminal's clipboard; /export writes it to a file", "warning")
            )

    async def _attach_image(self, rest: str) -> None:
        if not rest:
            self._view.show(Notice("Name a file: /image picture.png", "error"))
            return
        self._attach(rest)

    async def _show_cost(self, rest: str) -> None:
        stats = await self._conversation.get_session_stats()
        tokens = stats.tokens
        usage = value_or_default(stats.context_usage, None)
        rows = [
            f"${stats.cost:.4f} for {format_count(stats.user_messages, 'message')} of yours, "
            f"{format_count(stats.assistant_messages, 'answer')} and {format_count(stats.tool_calls, 'tool call')}",
            f"tokens: {tokens.input:,} in, {tokens.output:,} out, {tokens.cache_read:,} read from the cache, "
            f"{tokens.cache_write:,} written to it",
        ]
        if usage is not None and usage.tokens is not None:
            rows.append(f"context: {usage.tokens:,} of {usage.context_window:,} tokens")
        self._view.show(Notice("\n".join(rows)))

    async def _choose_permissions(self, rest: str) -> None:
        now = await self._conversation.get_permissions()
        choices = [Choice(one.value, one.label, "now" if one.value == now.default else "") for one in DEFAULTS]
        question = ChoiceQuestion(
            "What may tools do in this conversation?", choices, detail=_rules_text(now), chosen=now.default
        )
        chosen = await self._view.ask(question)
        if chosen is None or chosen == now.default:
            return
        await self._conversation.set_permissions({"default": chosen, **now.host.by_verdict()})
        after = await self._conversation.get_permissions()
        if after.default != chosen:
            self._view.show(
                Notice(
                    f"Your settings are stricter: the default for calls without a rule stays {after.default}", "warning"
                )
            )

    async def _toggle_plan_mode(self, rest: str) -> None:
        now = (await self._conversation.get_permissions()).host.approval_mode
        if now != PLAN:
            self._mode_before_plan = now
        after = await self._conversation.set_approval_mode(self._mode_before_plan if now == PLAN else PLAN)
        await self._update_facts()
        if after.approval_mode == PLAN:
            text = PLANS_FIRST if now != PLAN else "Your settings say that the model plans first, so it stays so"
        else:
            text = "Plan mode is over"
        self._view.show(Notice(text, "faint"))

    async def _decide_trust(self, rest: str) -> None:
        state = await self._conversation.get_trust()
        if not state.waiting:
            self._view.show(Notice("This folder is trusted" if state.trusted else "Nothing here needs trust", "faint"))
            return
        await self.ask_trust(state.cwd, state.waiting)

    async def ask_trust(self, cwd: str, waiting: list[str]) -> None:
        """Ask whether the files of a folder may be used."""
        choices = (
            Choice("always", "Yes, always in this folder"),
            Choice("once", "Yes, this time"),
            Choice("no", "No"),
        )
        detail = "\n".join(f"  {path}" for path in waiting)
        question = ChoiceQuestion(f"Do you trust the files in {cwd}?", choices, detail=detail, chosen="no")
        chosen = await self._view.ask(question)
        if chosen is None or chosen == "no":
            return
        change = await self._conversation.set_trust(True, remember=chosen == "always")
        if change.needs_restart:
            names = ", ".join(change.needs_restart)
            if await self._renew(change.cwd):
                self._view.show(Notice(f"In use now: {names}", "faint"))
            else:
                self._view.show(Notice(f"In use after a restart: {names}", "faint"))
        if problem := value_or_default(change.problem, ""):
            self._view.show(Notice(problem, "warning"))

    async def _quit(self, rest: str) -> None:
        self._view.leave()


def _rules_text(now: Permissions) -> str:
    lines = [
        f"{verdict}: {', '.join(rules)}"
        for source in (now.user, now.project, now.host)
        for verdict, rules in source.by_verdict().items()
        if rules
    ]
    lines += [f"allowed for this session: {one.tool_name} {one.subject}" for one in now.allowed]
    return "\n".join(lines) or "There are no rules."


def _make_undo_rows(undo: UndoCommands) -> tuple[CommandRow, ...]:
    about = "take back what the last prompt did to files; with force, whatever has become of them"
    return (
        CommandRow("undo", about, undo.undo, "[force]"),
        CommandRow("redo", "take the last undo back", undo.redo),
        CommandRow("changes", "show which files the agent has changed, and how", undo.show_changes, "[file]"),
    )
