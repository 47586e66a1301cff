"""The folders of a project that settings, tool servers and resources are in."""

from __future__ import annotations

import os

from pigeon.system.environment import OWN_NAME

# The folders of a project that may hold Pigeon's files, ours first.
PROJECT_FOLDERS = (OWN_NAME, ".pi")


def own_folder(cwd: str) -> str:
    return os.path.join(cwd, OWN_NAME)


def project_dirs(cwd: str) -> list[str]:
    """`PROJECT_FOLDERS` of a project, as paths."""
    return [os.path.join(cwd, name) for name in PROJECT_FOLDERS]
