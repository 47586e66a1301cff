"""Everything a client learns about a session besides its events: title, plan, usage, commands, options, trust.

All of it is read from the conversation, and nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable

from pigeon.frontends.acp.editions.edition import CommandView, ConfigOption, Edition, PlanTask, Update
from pigeon.frontends.acp.options import SessionOptions
from pigeon.frontends.acp.undo_prompts import COMMANDS
from pigeon.sdk.conversation import Conversation
from pigeon.system import clock
from pigeon.wire.base import Absent, value_or_default
from pigeon.wire.steering import TodoPhase

LONGEST_TITLE = 80
NOT_TRUSTED = (
    "The project {cwd} is not trusted, so these of its files are not used: {names}. To use them, start `pigeon` there "
    "in a terminal, enter /trust, answer that it is always trusted, and open the session again"
)
PLAN_STATUS = {"abandoned": "cancelled"}


class SessionReports:
    """The reports about one conversation, with what was reported last."""

    def __init__(self, conversation: Conversation, edition: Edition, send_all: Callable[[list[Update]], None]) -> None:
        self._conversation = conversation
        self._edition = edition
        self._send_all = send_all
        self._options = SessionOptions(conversation)
        self._title: str | None = None
        self._plan: list[PlanTask] = []
        self._commands: list[CommandView] = []

    async def read_options_and_commands(self) -> tuple[list[ConfigOption], list[CommandView]]:
        """The options and the commands, for the answer to opening the session; also reads the title."""
        options, self._commands = await self._options.read(), await self._read_commands()
        state = await self._conversation.get_state()
        # A session that has a name or messages already has its title.
        self._title = value_or_default(state.session_name, "" if state.message_count else None)
        return options, self._commands

    def send_known_commands(self) -> None:
        """Send the commands that `read_start` found."""
        self._send_all(self._edition.command_updates(self._commands))

    def report_title(self, title: str | None) -> None:
        """Report that the session was named, or that its name was removed."""
        self._title = title
        self._send_all(self._edition.info_updates(title))

    def set_title_from_prompt(self, text: str) -> None:
        """Name a session that has no title after its first prompt."""
        if self._title is None:
            self._title = _title_of(text)
            self._send_all(self._edition.info_updates(self._title, clock.to_iso(clock.now_ms())))

    async def send_plan(self) -> None:
        tasks = _plan_tasks((await self._conversation.get_state()).todo_phases)
        if tasks != self._plan:
            self._plan = tasks
            self._send_all(self._edition.plan_updates(tasks))

    async def send_usage(self) -> None:
        stats = await self._conversation.get_session_stats()
        usage = stats.context_usage
        if not isinstance(usage, Absent) and usage.tokens is not None:
            self._send_all(self._edition.usage_updates(usage.tokens, usage.context_window, float(stats.cost)))

    async def send_commands(self) -> None:
        commands = await self._read_commands()
        if commands != self._commands:
            self._commands = commands
            self._send_all(self._edition.command_updates(commands))

    async def send_options(self) -> None:
        changed = await self._options.read_changes()
        if changed is not None:
            self._send_all(self._edition.option_updates(*changed))

    async def set_option(self, id: str, value: object) -> list[ConfigOption]:
        """Choose a value of an option, and send it as an update, too: other parts of the client may show it."""
        before = await self._options.read()
        options = await self._options.set_value(id, value)
        if options != before:
            mode = [option.current for option in options[:1]] != [option.current for option in before[:1]]
            self._send_all(self._edition.option_updates(options, mode))
        return options

    async def describe_pending_trust(self) -> str | None:
        """A notice that files of the project wait for a trust decision, which cannot be made here; None if none do."""
        trust = await self._conversation.get_trust()
        if not trust.waiting or trust.decided_by is not None:
            return None
        names = ", ".join(path.removeprefix(f"{trust.cwd}/") for path in trust.waiting)
        return NOT_TRUSTED.format(cwd=trust.cwd, names=names)

    async def _read_commands(self) -> list[CommandView]:
        found = (await self._conversation.get_commands()).commands
        known = [
            CommandView(one.name, value_or_default(one.description, "") or one.source, "arguments")
            for one in found
            if one.name not in {own.name for own in COMMANDS}
        ]
        return sorted([*known, *COMMANDS], key=lambda one: one.name)


def _plan_tasks(phases: list[TodoPhase]) -> list[PlanTask]:
    many = len(phases) > 1
    return [
        PlanTask(f"{phase.name}: {task.content}" if many else task.content, PLAN_STATUS.get(task.status, task.status))  # type: ignore[arg-type]
        for phase in phases
        for task in phase.tasks
    ]


def _title_of(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"
