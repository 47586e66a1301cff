"""The way through a command that provides the stdin and stdout of a shell, such as `kubectl exec -i POD -- sh`."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.system.process.variables import ProgramEnvironment
from pigeon.workspaces.remote.transport import MachineTransport
from pigeon.workspaces.url import WorkspaceUrl


def make_command_transport(url: WorkspaceUrl, environment: Callable[[], ProgramEnvironment]) -> MachineTransport:
    return MachineTransport(
        kind="exec", name=url.name, argv=list(url.argv), environment=environment, explain=explain_command_failure
    )


def explain_command_failure(said: str, code: int) -> str:
    """Why the command brought no shell."""
    last = said.splitlines()[-1].strip() if said else ""
    ended = f"the command ended with code {code}" if code >= 0 else "the command does not answer"
    return f"{ended}: {last}" if last else f"{ended} instead of starting a shell"
