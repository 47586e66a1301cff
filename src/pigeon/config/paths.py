"""The folders that settings, models, credentials, sessions and resources are in."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pigeon.system.paths import absolute

OWN_NAME = ".pigeon"


def agent_dir(asked: str | None, variables: Mapping[str, str], cwd: str, home: str) -> str:
    """The folder of settings, models, keys and sessions: the one asked for, else a variable's, else in the home."""
    named = asked or variables.get("PIGEON_CODING_AGENT_DIR") or variables.get("PI_CODING_AGENT_DIR")
    return absolute(named, cwd, home) if named else os.path.join(home, OWN_NAME, "agent")


def project_dirs(cwd: str) -> list[str]:
    """The folders of a project that may hold Pigeon's files, ours first."""
    return [os.path.join(cwd, OWN_NAME), os.path.join(cwd, ".pi")]
