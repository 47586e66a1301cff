"""The folders of a project that settings, tool servers and resources are in."""

from __future__ import annotations

import os

from pigeon.system.environment import OWN_NAME


def own_folder(cwd: str) -> str:
    return os.path.join(cwd, OWN_NAME)


def project_dirs(cwd: str) -> list[str]:
    """The folders of a project that may hold Pigeon's files, ours first."""
    return [own_folder(cwd), os.path.join(cwd, ".pi")]
