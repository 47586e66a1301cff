"""Puts a session together from options, settings and files. The only module that knows all the rooms."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from msgspec import Struct

from pigeon.cli.apply_settings import apply_settings
from pigeon.cli.args import Options
from pigeon.cli.built_in import DEMO, Offer
from pigeon.cli.export_page import write_session_page
from pigeon.cli.models import Choice, choose, gateway_of, registry_of
from pigeon.cli.reports import Reports
from pigeon.cli.sessions import journal_of, shelf_of
from pigeon.cli.tools import Bench, ready_for_commands, share_plan, stop_children
from pigeon.config.paths import agent_dir
from pigeon.config.settings import load_settings, settings_file
from pigeon.providers.gateway import Gateway
from pigeon.providers.registry import ModelRegistry
from pigeon.resources.load import ResourceOptions, Resources
from pigeon.resources.rule_files import read_rules, rule_folders
from pigeon.session.journal import Journal
from pigeon.session.parts import Parts
from pigeon.session.session import Session
from pigeon.session.shelf import Shelf
from pigeon.system import clock
from pigeon.system.shell import Workplace
from pigeon.wire.commands import InterruptMode
from pigeon.wire.entries import SessionInfo
from pigeon.wire.rules import Rule


class Composed(Struct):
    """A session, and what its host has to know of it."""

    session: Session
    problems: list[str]
    drains: Callable[[], bool]
    started: Callable[[], None]
    warm: Callable[[], Awaitable[None]]
    stop_children: Callable[[], Awaitable[None]]


class Composer:
    """Collects the pieces in the order in which they need each other."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._folder = agent_dir(os.environ)
        self._reports = Reports()
        self._settings, self._problems = load_settings(settings_file(self._folder))
        self._cwd = os.path.abspath(os.path.expanduser(options.cwd or os.getcwd()))
        self._session: Session | None = None

    def compose(self, default_interrupt: InterruptMode) -> Composed:
        """The session that the options describe."""
        options, settings = self._options, self._settings
        registry = registry_of(self._folder, os.environ)
        choice = choose(options, settings, registry)
        gateway = gateway_of(registry, settings)
        shelf = shelf_of(options, settings, self._folder, self._cwd, os.environ, self._reports)
        journal = journal_of(options, shelf, self._cwd)
        session = self._session = Session(self._parts(choice, registry, gateway, shelf, journal))
        apply_settings(settings, session, default_interrupt)
        session.work.runs.before_run = lambda: ready_for_commands(session.toolset)
        share_plan(options, session.toolset, session.todos)
        if options.name:
            session.journal.append(SessionInfo, name=options.name)

        async def warm() -> None:
            if session.models.model is not None:
                await gateway.warm(session.models.model)

        return Composed(
            session=session,
            problems=[*self._problems, *registry.problems(), *choice.problems],
            drains=lambda: options.drain or _is_demo(session),
            started=lambda: self._reports.to(session.bus.post),
            warm=warm,
            stop_children=stop_children,
        )

    def _parts(
        self, choice: Choice, registry: ModelRegistry, gateway: Gateway, shelf: Shelf, journal: Journal
    ) -> Parts:
        bench = Bench(self._options, self._settings, journal.cwd, lambda: self._session)
        resources = self._resources(journal.cwd)

        def moved(cwd: str) -> Workplace:
            resources.move_to(cwd, False)
            return bench.move_to(cwd)

        return Parts(
            shelf=shelf,
            journal=journal,
            place=bench.place,
            moved=moved,
            provider=gateway,
            models=Offer(registry, choice.built_in),
            model=choice.model,
            thinking=choice.thinking,
            scoped=choice.scoped,
            model_is_explicit=choice.explicit,
            toolset=bench.toolset,
            expander=resources.expander(),
            system_prompt=lambda cwd: resources.system_prompt(cwd, *bench.toolset.described()),
            now=clock.now_ms,
            report=self._reports,
            rules=self._rules,
            write_page=write_session_page,
            models_file=os.path.join(self._folder, "models.json"),
        )

    def _rules(self, cwd: str) -> list[Rule]:
        if self._options.no_rules:
            return []
        return read_rules(rule_folders(self._folder, cwd, False), self._reports)

    def _resources(self, cwd: str) -> Resources:
        options = self._options
        chosen = ResourceOptions(
            skills=options.skill,
            prompt_templates=options.prompt_template,
            no_skills=options.no_skills,
            no_prompt_templates=options.no_prompt_templates,
            no_context_files=options.no_context_files,
            system_prompt=options.system_prompt,
            append_system_prompt=options.append_system_prompt,
        )
        return Resources(
            self._folder, cwd, False, chosen, report=self._reports, expansion_failed=self._reports.skill_failed
        )


def _is_demo(session: Session) -> bool:
    """The demo is for trying things out by hand, where stdin ends with the prompt."""
    return session.models.model is not None and session.models.model.provider == DEMO
