"""`--list-models`: a table of what can be used."""

from __future__ import annotations

import os
import sys

from pigeon.app.models import registry_of
from pigeon.cli.args import Options
from pigeon.config.paths import agent_dir


def run_list_models(options: Options) -> int:
    """Print the table."""
    from pigeon.providers.default_model import model_table

    registry = registry_of(agent_dir(os.environ), os.environ)
    print(model_table(registry.available(), options.list_models))  # noqa: T201
    for problem in registry.problems():
        print(f"pigeon: {problem}", file=sys.stderr)  # noqa: T201
    return 0
