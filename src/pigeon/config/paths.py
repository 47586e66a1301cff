"""Where the user's files are."""

from __future__ import annotations

import os
from collections.abc import Mapping

OWN_NAME = ".pigeon"


def agent_dir(environment: Mapping[str, str]) -> str:
    """The folder of settings, models, keys and sessions; a pi user can point us at theirs."""
    for name in ("PIGEON_CODING_AGENT_DIR", "PI_CODING_AGENT_DIR"):
        if environment.get(name):
            return os.path.abspath(os.path.expanduser(environment[name]))
    return os.path.join(os.path.expanduser("~"), OWN_NAME, "agent")


def project_dirs(cwd: str) -> list[str]:
    """The folders of a project that may hold Pigeon's files, ours first."""
    return [os.path.join(cwd, OWN_NAME), os.path.join(cwd, ".pi")]
