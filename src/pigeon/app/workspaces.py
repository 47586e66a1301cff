"""The workspace that a URL names."""

from __future__ import annotations

from collections.abc import Collection

from pigeon.system.environment import Environment
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment, persons_environment
from pigeon.wire.errors import StartupError
from pigeon.workspaces.workspace import Workspace


def make_workspace(
    url: str, environment: Environment, processes: ProcessOwner, key_names: Collection[str]
) -> Workspace:
    """The workspace of a URL, not connected; raises `WrongWorkspace` for one that cannot be meant.

    The programs that reach it (`ssh`, `podman`) see the person's variables without the keys of model providers.
    """
    if url.startswith("object:"):
        raise StartupError(
            f"This conversation works in the workspace {url.removeprefix('object:')}, which a program has given: "
            "open it from there"
        )
    from pigeon.workspaces.remote.opening import RemoteParts, make_remote_workspace
    from pigeon.workspaces.url import parse_workspace_url

    wanted = parse_workspace_url(url)

    def make_environment() -> ProgramEnvironment:
        return persons_environment(environment.variables, key_names)

    return make_remote_workspace(wanted, RemoteParts(processes, make_environment, environment.cwd))
