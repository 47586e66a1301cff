"""Pages and trajectories of session files without an agent; the user's keys are still masked."""

from __future__ import annotations

from pigeon.app.models import make_registry
from pigeon.config.layers import Layers
from pigeon.export.page_writer import PageWriter
from pigeon.secrets.redactor import Redactor
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.environment import Environment


def export_session_page(environment: Environment, file: str, asked: str = "", *, by_title: bool = False) -> str:
    """Write the page of a session file and return its path."""
    return _make_page_writer(environment).write_page_of_file(file, asked, by_title)


def export_trajectory(environment: Environment, file: str, asked: str = "", leaf: str = "") -> str:
    """Write a session file as a trajectory (ATIF) and return its path; images become files beside it.

    It contains the branch that ends in `leaf`, else the one of the last entry. Keys are masked as in pages.
    """
    return _make_page_writer(environment).write_trajectory(file, asked, leaf)


def _make_page_writer(environment: Environment) -> PageWriter:
    redactor = Redactor()
    folder = environment.agent_dir()
    make_registry(folder, environment.variables, environment.cwd or "/", None, redactor)
    settings = Layers(folder, lambda problem: None).settings
    return PageWriter(environment, SessionFolders.from_agent_dir(folder), redactor.mask, settings.export.mask_secrets)
