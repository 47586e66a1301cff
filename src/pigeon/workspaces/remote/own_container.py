"""A container of our own, for one task or conversation: started with its workspace, and gone with it.

The engine's client holds the stdin of the container's first process, a shell that does nothing but read it. However we
end, by SIGKILL too, that input ends; the shell ends with it, the engine removes the container (`--rm`), and everything
in there is gone. The image needs nothing but `/bin/sh`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable

from pigeon.system.paths import keep_absolute_entries
from pigeon.system.process.variables import ProgramEnvironment
from pigeon.wire.choices import WorkspaceKind
from pigeon.workspaces.errors import WorkspaceUnusable, WrongWorkspace
from pigeon.workspaces.remote.containers import ENGINE_VARIABLES, make_container_transport
from pigeon.workspaces.remote.machine_workspace import MachineWorkspace
from pigeon.workspaces.remote.remote_workspace import RemoteParts
from pigeon.workspaces.remote.transport import Link, MachineTransport, start_transport
from pigeon.workspaces.url import WorkspaceUrl

MOUNTED_AT = "/workspace"
ENGINES = ("podman", "docker")
# An image may have to be fetched first.
START_WITHIN = 900.0
REMOVE_WITHIN = 10.0
_WAIT = "echo pigeon-ready; read -r nothing"


class OwnContainer(MachineWorkspace):
    """The workspace in a container that is started when it is opened and removed when it is closed.

    `folder` is a folder of this machine, which is mounted at `/workspace`.
    """

    def __init__(self, image: str, folder: str, engine: str | None, parts: RemoteParts) -> None:
        found = find_engine(engine, parts.environment)
        name = f"pigeon-{os.urandom(6).hex()}"
        url = WorkspaceUrl(url=f"{found}://{name}{MOUNTED_AT}", kind=_KINDS[found], name=name, path=MOUNTED_AT)
        super().__init__(make_container_transport(url, parts.environment), MOUNTED_AT, url.url, parts)
        self._image = image
        self._mounted = folder
        self._engine = found
        self._holding: Link | None = None

    async def open(self) -> None:
        await self._start()
        try:
            await super().open()
        except BaseException:
            await self._remove()
            raise

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._remove()

    async def _start(self) -> None:
        transport = MachineTransport(
            kind=self.kind,
            name=self.name,
            argv=[self._engine, *make_run_arguments(self._engine, self.name, self._image, self._mounted)],
            environment=lambda: self._parts.environment().only(ENGINE_VARIABLES),
            explain=lambda said, code: said,
            is_detached=True,
        )
        try:
            link = await start_transport(transport, self._parts.processes, self._parts.cwd)
        except OSError as error:
            raise WorkspaceUnusable(f"Cannot run {self._engine}: {error.strerror or error}") from None
        try:
            async with asyncio.timeout(START_WITHIN):
                while line := await link.reader.readline():
                    if line.rstrip() == b"pigeon-ready":
                        self._holding = link
                        return
                await link.wait_for_end(2.0)
        except TimeoutError:
            reason = f"it did not start within {START_WITHIN:g} seconds"
        except BaseException:
            link.close()
            raise
        else:
            reason = link.said.splitlines()[-1] if link.said else "it ended at once"
        link.close()
        raise WorkspaceUnusable(f"Cannot start a container of {self._image} with {self._engine}: {reason}")

    async def _remove(self) -> None:
        link, self._holding = self._holding, None
        if link is not None:
            await asyncio.shield(link.close_when_written(REMOVE_WITHIN))


_KINDS: dict[str, WorkspaceKind] = {"podman": "podman", "docker": "docker"}


def find_engine(wanted: str | None, environment: Callable[[], ProgramEnvironment]) -> str:
    """The engine that was asked for, or the first that is installed; raises `WorkspaceUnusable` if there is none."""
    if wanted is not None and wanted not in ENGINES:
        raise WrongWorkspace(f'Unknown container engine "{wanted}" for the workspace: use {" or ".join(ENGINES)}')
    path = keep_absolute_entries(environment().get("PATH"))
    for engine in ENGINES if wanted is None else (wanted,):
        if shutil.which(engine, path=path):
            return engine
    missing = f"{wanted} is" if wanted else "neither podman nor docker is"
    raise WorkspaceUnusable(f"Cannot start a container for the workspace: {missing} in PATH")


def make_run_arguments(engine: str, name: str, image: str, folder: str) -> list[str]:
    """How the engine is asked for the container; raises `WrongWorkspace` for what it would take as something else."""
    if not image or image.startswith("-"):
        raise WrongWorkspace(f'"{image}" cannot be the image of a container for the workspace')
    if ":" in folder:
        raise WrongWorkspace(f"The folder {folder} cannot be mounted in a container: its path has a colon")
    # What the engine of another user creates in the folder would be that user's; podman's is ours.
    user = ["--user", f"{os.getuid()}:{os.getgid()}"] if engine == "docker" and os.getuid() else []
    return [
        *("run", "--rm", "--interactive", "--name", name, "--volume", f"{folder}:{MOUNTED_AT}"),
        *("--workdir", MOUNTED_AT, "--security-opt", "label=disable", *user),
        *("--label", "pigeon=workspace", "--entrypoint", "/bin/sh", image, "-c", _WAIT),
    ]
