"""Pages and trajectories of session files without an agent: the user's keys are masked all the same."""

from __future__ import annotations

from pigeon.app.models import registry_of
from pigeon.config.layers import Layers
from pigeon.export.page_writer import PageWriter
from pigeon.secrets.redactor import Redactor
from pigeon.system.environment import Environment


def export_file(environment: Environment, file: str, asked: str = "", *, by_title: bool = False) -> str:
    """Write the page of a session file and return its path."""
    return _user_pages(environment).export(file, asked, by_title)


def export_trajectory(environment: Environment, file: str, asked: str = "", leaf: str = "") -> str:
    """Write a session file as a trajectory (ATIF) and return its path; images become files beside it.

    Of several branches it is the one that ends in `leaf`, else the one of the last entry. Keys are masked as in pages.
    """
    return _user_pages(environment).trajectory(file, asked, leaf)


def _user_pages(environment: Environment) -> PageWriter:
    redactor = Redactor()
    folder = environment.agent_dir()
    registry_of(folder, environment.variables, environment.cwd or "/", None, redactor)
    settings = Layers(folder, lambda problem: None).settings
    return PageWriter(environment, redactor.mask, settings.export.mask_secrets)
