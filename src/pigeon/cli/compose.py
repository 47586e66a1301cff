"""Puts a session together from options, settings and files. The only module that knows all the rooms."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from msgspec import Struct

from pigeon.cli.args import Options
from pigeon.config.paths import agent_dir
from pigeon.config.settings import Settings, load_settings, settings_file
from pigeon.resources.prompts import Templates
from pigeon.resources.system_prompt import system_prompt
from pigeon.session.session import Parts, Session
from pigeon.session.toolset import Toolset
from pigeon.system import clock
from pigeon.wire.base import Absent
from pigeon.wire.commands import InterruptMode


class Composed(Struct):
    """A session, and what its host has to know of it."""

    session: Session
    problems: list[str]
    drains: Callable[[], bool]
    stop_children: Callable[[], Awaitable[None]]


class _Models:
    def __init__(self, models):
        self._m = models
    def available(self): return self._m
    def find(self, p, i): return next((m for m in self._m if m.provider == p and m.id == i), None)


def compose(options: Options, default_interrupt: InterruptMode) -> Composed:
    """The session that these options describe."""
    folder = agent_dir(os.environ)
    settings, problems = load_settings(settings_file(folder))
    cwd = os.path.abspath(os.path.expanduser(options.cwd or os.getcwd()))
    from pigeon.providers.demo import DemoModel, demo_model
    from pigeon.providers.scripted import ScriptedModel, scripted_model
    if options.model and options.model.startswith("demo"):
        model, provider = demo_model(), DemoModel()
    elif options.model and options.model.startswith("scripted/"):
        model, provider = scripted_model(options.model.removeprefix("scripted/")), ScriptedModel()
    else:
        model, provider = None, DemoModel()
    toolset = Toolset({}, ())
    from pigeon.session.shelf import Shelf
    from pigeon.session.places import default_folder
    shelf = Shelf(default_folder(folder, cwd), not options.no_session, clock.now_ms, lambda t: None)
    parts = Parts(
        shelf=shelf, journal=shelf.new(cwd), provider=provider, models=_Models([model] if model else []), model=model,
        thinking=settings.default_thinking_level, toolset=toolset,
        expander=Templates([(os.path.join(folder, "prompts"), "user")]),
        system_prompt=lambda: system_prompt(cwd, []), now=clock.now_ms,
        models_file=os.path.join(folder, "models.json"),
    )
    session = Session(parts)
    session.conduct.interrupt_mode = default_interrupt
    async def none(): return None
    return Composed(session, problems, lambda: options.drain or bool(session.models.model and session.models.model.provider == "demo"), none)
