"""From the URL of a workspace elsewhere to the workspace."""

from __future__ import annotations

from pigeon.workspaces.remote.command import make_command_transport
from pigeon.workspaces.remote.containers import make_container_transport
from pigeon.workspaces.remote.machine_workspace import MachineWorkspace
from pigeon.workspaces.remote.remote_workspace import RemoteParts
from pigeon.workspaces.remote.ssh import make_ssh_transport
from pigeon.workspaces.remote.transport import MachineTransport
from pigeon.workspaces.url import WorkspaceUrl

__all__ = ["RemoteParts", "make_remote_workspace", "make_transport"]


def make_remote_workspace(url: WorkspaceUrl, parts: RemoteParts) -> MachineWorkspace:
    """The workspace of a URL; `open` connects to it."""
    return MachineWorkspace(make_transport(url, parts), url.path, url.url, parts)


def make_transport(url: WorkspaceUrl, parts: RemoteParts) -> MachineTransport:
    if url.kind == "ssh":
        return make_ssh_transport(url, parts.environment)
    if url.kind == "exec":
        return make_command_transport(url, parts.environment)
    return make_container_transport(url, parts.environment)
