"""The URL of a workspace: which machine, and which folder there.

ssh://[user@]host[:port]/path      docker://CONTAINER/path      podman://CONTAINER/path
exec:COMMAND#/path                 host:/path
"""

from __future__ import annotations

import re
import shlex
from urllib.parse import unquote

from msgspec import Struct

from pigeon.wire.choices import WorkspaceKind
from pigeon.workspaces.errors import WrongWorkspace

_HOST = r"[A-Za-z0-9_][A-Za-z0-9._%-]*|\[[0-9A-Fa-f:.%]+\]"
_CONTAINER = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_KINDS = "ssh://HOST/PATH, docker://CONTAINER/PATH, podman://CONTAINER/PATH, exec:COMMAND#/PATH or host:/PATH"


class WorkspaceUrl(Struct, frozen=True, kw_only=True):
    """A URL that has been read. `name` is the machine as errors name it, `argv` the command of `exec:`."""

    url: str
    kind: WorkspaceKind
    name: str
    path: str
    user: str | None = None
    port: int | None = None
    argv: tuple[str, ...] = ()


def parse_workspace_url(url: str) -> WorkspaceUrl:
    """The parts of a URL; raises `WrongWorkspace`, without anything that could be a password."""
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in url):
        raise WrongWorkspace("The URL of the workspace has a control character")
    scheme, colon, rest = url.partition(":")
    read = {"ssh": _read_ssh, "docker": _read_container, "podman": _read_container, "exec": _read_exec}.get(scheme)
    if scheme == "host" and colon:
        return WorkspaceUrl(url=url, kind="host", name="host", path=_check_folder(rest, url))
    if read is None or not colon:
        raise WrongWorkspace(f'Unknown workspace "{_without_password(url)}": use {_KINDS}')
    return read(url, rest)


def _read_ssh(url: str, rest: str) -> WorkspaceUrl:
    authority, path = _split_authority(url, rest)
    user, at, address = authority.rpartition("@")
    if ":" in user:
        raise WrongWorkspace("The URL of the workspace has a password in it: use a key or the agent of ssh instead")
    found = re.fullmatch(rf"({_HOST})(?::([0-9]+))?", address)
    if found is None:
        raise WrongWorkspace(
            f'The workspace "{_without_password(url)}" has no valid host: ssh://[user@]host[:port]/path'
        )
    if at and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+$@\\-]*", unquote(user)):
        raise WrongWorkspace(f'The workspace "{_without_password(url)}" has no valid user name before the @')
    port = None if found[2] is None else int(found[2])
    if port is not None and not 0 < port < 65536:
        raise WrongWorkspace(f'The workspace "{url}" has no valid port: {port}')
    return WorkspaceUrl(
        url=url, kind="ssh", name=found[1].strip("[]"), path=path, user=unquote(user) if at else None, port=port
    )


def _read_container(url: str, rest: str) -> WorkspaceUrl:
    authority, path = _split_authority(url, rest)
    if not re.fullmatch(_CONTAINER, authority):
        raise WrongWorkspace(
            f'The workspace "{_without_password(url)}" names no container: {url.partition(":")[0]}://CONTAINER/path'
        )
    kind: WorkspaceKind = "docker" if url.startswith("docker:") else "podman"
    return WorkspaceUrl(url=url, kind=kind, name=authority, path=path)


def _read_exec(url: str, rest: str) -> WorkspaceUrl:
    command, mark, path = rest.rpartition("#")
    if not mark:
        raise WrongWorkspace(f'The workspace "{url}" has no path: exec:COMMAND#/path')
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise WrongWorkspace(f'The command of the workspace "{url}" cannot be read: {error}') from None
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise WrongWorkspace(f'The workspace "{url}" has no command: exec:COMMAND#/path')
    return WorkspaceUrl(url=url, kind="exec", name=command.strip(), path=_check_folder(path, url), argv=tuple(argv))


def _split_authority(url: str, rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        raise WrongWorkspace(f'The workspace "{_without_password(url)}" is not complete: use {_KINDS}')
    authority, slash, path = rest[2:].partition("/")
    if not authority:
        raise WrongWorkspace(f'The workspace "{url}" has no host: use {_KINDS}')
    return authority, _check_folder(slash + unquote(path), url)


def _check_folder(path: str, url: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise WrongWorkspace(f'The workspace "{_without_password(url)}" has no absolute path: use {_KINDS}')
    return path.rstrip("/") or "/"


def _without_password(url: str) -> str:
    return re.sub(r"(//[^/@:]*):[^/]*@", r"\1:...@", url)
