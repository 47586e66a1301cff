"""The way into a container that runs on this machine: `docker exec` or `podman exec`."""

from __future__ import annotations

import re
from collections.abc import Callable

from pigeon.system.process.variables import ProgramEnvironment
from pigeon.workspaces.remote.transport import MachineTransport
from pigeon.workspaces.url import WorkspaceUrl

# What finds the engine. Podman passes none of it on to the container.
ENGINE_VARIABLES = (
    *("HOME", "PATH", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "CONTAINER_HOST"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK"),
)
_MISSING = r"no such container|no container with name or ID|No such container"
_STOPPED = r"is not running|container state improper|can only create exec sessions on running containers"


def make_container_transport(url: WorkspaceUrl, environment: Callable[[], ProgramEnvironment]) -> MachineTransport:
    return MachineTransport(
        kind=url.kind,
        name=url.name,
        argv=[url.kind, "exec", "-i", url.name, "/bin/sh"],
        environment=lambda: environment().only(ENGINE_VARIABLES),
        explain=explain_container_failure,
        is_detached=True,
    )


def explain_container_failure(said: str, code: int) -> str:
    """Why there is no shell in the container."""
    last = said.splitlines()[-1].strip() if said else ""
    if re.search(_MISSING, said, re.IGNORECASE):
        return f"there is no such container: {last}"
    if re.search(_STOPPED, said, re.IGNORECASE):
        return f"the container does not run: {last}"
    if re.search(r"/bin/sh\W.*(no such file|not found)", said, re.IGNORECASE):
        return f"the container has no /bin/sh: {last}"
    return last or (f"the container engine ended with code {code}" if code >= 0 else "the container does not answer")
