"""The editor of the person, who writes a message in it."""

from __future__ import annotations

from collections.abc import Mapping

# Tried in this order if neither VISUAL nor EDITOR names one that exists.
EDITORS = ("/usr/bin/editor", "/usr/bin/nano", "/usr/bin/pico", "/usr/bin/vi", "/usr/bin/emacs")


def edit_file(path: str, variables: Mapping[str, str], agent_dir: str) -> bool:
    """Open a file in the person's editor and wait for its end; returns False if there is none, or it has failed."""
    import shlex

    from pigeon.app.models import list_secret_variables
    from pigeon.system.process.foreground import run_in_foreground
    from pigeon.system.process.variables import persons_environment

    seen = persons_environment(variables, list_secret_variables(agent_dir, variables))
    for editor in filter(None, (variables.get("VISUAL"), variables.get("EDITOR"), *EDITORS)):
        try:
            return run_in_foreground([*shlex.split(editor), path], seen) == 0
        except (OSError, ValueError):
            continue
    return False
