"""Puts a session together from options, settings and files. The only module that knows all the rooms."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from msgspec import Struct

from pigeon.cli.args import Options
from pigeon.cli.models import DEMO, Offer, built_in_model, choose, gateway_of, registry_of
from pigeon.cli.sessions import journal_of, shelf_of
from pigeon.cli.tools import share_plan, stop_children, tools_at, toolset_of, workplace_of
from pigeon.config.paths import agent_dir
from pigeon.config.settings import Settings, load_settings, settings_file
from pigeon.resources.prompts import Templates
from pigeon.resources.rule_files import read_rules, rule_folders
from pigeon.resources.system_prompt import system_prompt
from pigeon.session.compaction import CompactionPolicy
from pigeon.session.parts import Parts
from pigeon.session.places import artifact_folder
from pigeon.session.retry import RetryPolicy
from pigeon.session.session import Session
from pigeon.session.toolset import Toolset
from pigeon.system import clock, ids
from pigeon.system.shell import Workplace
from pigeon.wire.base import or_else
from pigeon.wire.commands import InterruptMode
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.events import Outbound


class Composed(Struct):
    """A session, and what its host has to know of it."""

    session: Session
    problems: list[str]
    drains: Callable[[], bool]
    warm: Callable[[], Awaitable[None]]
    stop_children: Callable[[], Awaitable[None]]


class Reports:
    """Trouble with files, told to the host as a notice; held back until there is a host."""

    def __init__(self) -> None:
        self._early: list[str] = []
        self._post: Callable[[Outbound], None] | None = None

    def __call__(self, text: str) -> None:
        """Tell it, or keep it for later."""
        if self._post is None:
            self._early.append(text)
        else:
            self._post(NotifyRequest(id=ids.dialog_id(), message=text, notify_type="warning"))

    def to(self, post: Callable[[Outbound], None]) -> None:
        """From here on there is somebody to tell."""
        self._post = post
        for text in self._early:
            self(text)


def compose(options: Options, default_interrupt: InterruptMode) -> Composed:
    """The session that these options describe."""
    folder = agent_dir(os.environ)
    settings, problems = load_settings(settings_file(folder))
    cwd = os.path.abspath(os.path.expanduser(options.cwd or os.getcwd()))
    registry = registry_of(folder, os.environ)
    built_in = built_in_model(options)
    choice = choose(options, settings, registry, built_in)
    gateway = gateway_of(registry, settings)
    reports = Reports()
    shelf = shelf_of(options, settings, folder, cwd, os.environ, reports)
    journal = journal_of(options, shelf, cwd)
    place = workplace_of(settings, journal.cwd, lambda: _artifacts(session))
    toolset = toolset_of(options, settings, place)

    def moved(cwd: str) -> Workplace:
        there = workplace_of(settings, cwd, lambda: _artifacts(session))
        toolset.replace(tools_at(there, settings))
        return there

    session = Session(
        Parts(
            shelf=shelf,
            journal=journal,
            place=place,
            moved=moved,
            provider=gateway,
            models=Offer(registry, built_in),
            model=choice.model,
            thinking=choice.thinking,
            toolset=toolset,
            expander=_templates(options, folder),
            system_prompt=_prompter(options, toolset),
            now=clock.now_ms,
            report=reports,
            rules=lambda cwd: [] if options.no_rules else read_rules(rule_folders(folder, cwd, False), reports),
            models_file=os.path.join(folder, "models.json"),
            model_is_explicit=choice.explicit,
        )
    )
    share_plan(options, toolset, session.todos)
    reports.to(session.bus.post)
    _apply(settings, session, default_interrupt)

    async def warm() -> None:
        if session.models.model is not None:
            await gateway.warm(session.models.model)

    return Composed(
        session=session,
        problems=[*problems, *registry.problems(), *choice.problems],
        drains=lambda: options.drain or _is_demo(session),
        warm=warm,
        stop_children=stop_children,
    )


def _apply(settings: Settings, session: Session, default_interrupt: InterruptMode) -> None:
    session.queue.steering_mode = settings.steering_mode
    session.queue.follow_up_mode = settings.follow_up_mode
    session.work.conduct.interrupt_mode = or_else(settings.interrupt_mode, default_interrupt)
    session.todos.clear_delay = settings.tasks.todo_clear_delay
    session.work.conduct.mode = settings.tool_execution
    session.work.compaction.enabled = settings.compaction.enabled
    session.work.compaction.policy = CompactionPolicy(
        reserve_tokens=or_else(settings.compaction.reserve_tokens, None),
        keep_tokens=or_else(settings.compaction.keep_recent_tokens, None),
        per_model=or_else(settings.compaction.model_overrides, {}),
    )
    session.work.retry.enabled = settings.retry.enabled
    session.work.retry.policy = RetryPolicy(
        max_retries=settings.retry.max_retries,
        base_delay_ms=settings.retry.base_delay_ms,
        max_delay_ms=settings.retry.max_agent_delay_ms,
    )


def _artifacts(session: Session) -> str | None:
    file = session.journal.file
    return artifact_folder(file) if file and session.journal.saved else None


def _is_demo(session: Session) -> bool:
    """The demo is for trying things out by hand, where stdin ends with the prompt."""
    return session.models.model is not None and session.models.model.provider == DEMO


def _templates(options: Options, folder: str) -> Templates:
    return Templates([] if options.no_prompt_templates else [(os.path.join(folder, "prompts"), "user")])


def _prompter(options: Options, toolset: Toolset) -> Callable[[str], str]:
    custom = _text_or_file(options.system_prompt) if options.system_prompt else None
    appended = [_text_or_file(text) for text in options.append_system_prompt]
    return lambda cwd: system_prompt(cwd, *toolset.described(), custom, appended)


def _text_or_file(value: str) -> str:
    if "\n" not in value and os.path.isfile(value):
        with open(value, encoding="utf-8", errors="replace") as file:
            return file.read()
    return value
