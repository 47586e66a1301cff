"""The workspace that a URL names."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pigeon.system.environment import Environment
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment, persons_environment
from pigeon.wire.errors import StartupError
from pigeon.workspaces.workspace import Workspace

if TYPE_CHECKING:
    from pigeon.workspaces.remote.opening import RemoteParts


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
    from pigeon.workspaces.url import parse_workspace_url

    wanted = parse_workspace_url(url)
    if wanted.kind == "host":
        from pigeon.session.host.host_workspace import HostWorkspace

        return HostWorkspace(wanted.path)
    from pigeon.workspaces.remote.opening import make_remote_workspace

    return make_remote_workspace(wanted, _make_parts(environment, processes, key_names))


def make_container(
    image: str,
    engine: str | None,
    folder: str,
    environment: Environment,
    processes: ProcessOwner,
    key_names: Collection[str],
) -> Workspace:
    """A container of an image, not started, with this folder; raises `StartupError` where there is no engine."""
    from pigeon.workspaces.remote.own_container import OwnContainer

    return OwnContainer(image, folder, engine, _make_parts(environment, processes, key_names))


def _make_parts(environment: Environment, processes: ProcessOwner, key_names: Collection[str]) -> RemoteParts:
    from pigeon.workspaces.remote.opening import RemoteParts

    def make_environment() -> ProgramEnvironment:
        return persons_environment(environment.variables, key_names)

    return RemoteParts(processes, make_environment, environment.cwd)
