"""Reads the surroundings of an agent from the process: its variables, home and working directory, and the name by which
it was called."""

from __future__ import annotations

import os
from collections.abc import Callable

from pigeon.system.environment import FAMILY, Environment, refuse_to_choose_session


def family_agent_of(program: str) -> str:
    """The agent of the family under whose name a program was called; empty for any other name."""
    base = os.path.basename(program).removesuffix(".py").removesuffix(".exe")
    return base if base in FAMILY else ""


def environment_of_process(
    program: str = "",
    pick_session: Callable[[str], str] = refuse_to_choose_session,
    module_path: list[str] | None = None,
) -> Environment:
    """The surroundings of this process; the variables are those of the process, not a copy.

    `program` is the name by which it was called.
    """
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = ""
    home = os.path.expanduser("~")
    return Environment(
        variables=os.environ,
        home=home,
        cwd=cwd,
        called=family_agent_of(program),
        pick_session=pick_session,
        module_path=module_path,
    )
