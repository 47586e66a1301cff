"""The folders that settings, models, credentials, sessions and resources are in."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pigeon.system.paths import absolute

OWN_NAME = ".pigeon"
# The folders that the other agents of the family keep in the home, by the names of their programs.
FAMILY = {"pi": ".pi", "omp": ".omp", "xcsh": ".xcsh"}


def agent_dir(asked: str | None, variables: Mapping[str, str], cwd: str, home: str, called: str = "") -> str:
    """The folder of settings, models, keys and sessions: the one asked for, else a variable's, else in the home.

    A program that is `called` like another agent of the family stands in for it: it uses the folder of that agent,
    unless there is one of its own.
    """
    named = asked or variables.get("PIGEON_CODING_AGENT_DIR") or variables.get("PI_CODING_AGENT_DIR")
    if named:
        return absolute(named, cwd, home)
    own = os.path.join(home, OWN_NAME, "agent")
    if called not in FAMILY or os.path.lexists(own):
        return own
    # Only the two that know this variable; it names a folder in the home.
    renamed = variables.get("PI_CONFIG_DIR") if called != "pi" else None
    return os.path.join(home, renamed or FAMILY[called], "agent")


def project_dirs(cwd: str) -> list[str]:
    """The folders of a project that may hold Pigeon's files, ours first."""
    return [os.path.join(cwd, OWN_NAME), os.path.join(cwd, ".pi")]
