"""`--list-models`: a table of the models that can be used."""

from __future__ import annotations

import sys

from pigeon.app.environment import Environment
from pigeon.app.models import registry_of
from pigeon.guard.secrets import Redactor
from pigeon.system.process.start import ProcessOwner
from pigeon.transport import exit_codes


def run_list_models(search: str, environment: Environment) -> int:
    """Print the table, with what is wrong with the files on stderr."""
    from pigeon.providers.default_model import model_table

    folder = environment.agent_dir()
    registry = registry_of(folder, environment.variables, environment.cwd or "/", ProcessOwner(), Redactor())
    print(model_table(registry.available(), search))  # noqa: T201
    for problem in registry.problems():
        print(f"pigeon: {problem}", file=sys.stderr)  # noqa: T201
    return exit_codes.OK
