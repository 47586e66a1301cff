"""Which tools a session has, by options and settings."""

from __future__ import annotations

from pigeon.cli.args import Options
from pigeon.config.settings import Settings
from pigeon.session.toolset import Toolset


def toolset_of(options: Options, settings: Settings, cwd: str) -> Toolset:
    """The tools that the options leave."""
    return Toolset({}, ())


async def stop_children() -> None:
    """End every process that a tool started."""
