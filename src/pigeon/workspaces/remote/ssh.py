"""The way over ssh: the system's OpenSSH, with the user's config, agent and known hosts."""

from __future__ import annotations

import re
from collections.abc import Callable

from pigeon.system.process.variables import ProgramEnvironment
from pigeon.workspaces.remote.transport import MachineTransport
from pigeon.workspaces.url import WorkspaceUrl

# Whatever the user's config says: nothing is asked, no unknown machine is trusted, and nothing but this connection is
# made. An existing master connection is used, but we never become one that others depend on.
_OPTIONS = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=15", "ControlMaster=no", "ControlPersist=no"),
    *("ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no", "PermitLocalCommand=no", "RemoteCommand=none"),
    *("RequestTTY=no", "ServerAliveInterval=10", "ServerAliveCountMax=2", "Tunnel=no", "LogLevel=ERROR"),
)
# What ssh and the programs of its config need. All of it could be sent to the other machine (`SendEnv *`).
_PASSED_ON = (
    *("HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_SK_PROVIDER", "KRB5CCNAME", "GPG_AGENT_INFO"),
)
_CHANGED = r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed"
_UNKNOWN = r"No \S+ host key is known|Host key verification failed"


def make_ssh_transport(url: WorkspaceUrl, environment: Callable[[], ProgramEnvironment]) -> MachineTransport:
    argv = ["ssh", "-T", *(word for option in _OPTIONS for word in ("-o", option))]
    if url.port is not None:
        argv += ["-p", str(url.port)]
    if url.user is not None:
        argv += ["-l", url.user]
    # A login shell of any kind understands this; it is replaced by the one that reads our commands.
    argv += ["--", url.name, "exec /bin/sh"]
    return MachineTransport(
        kind="ssh",
        name=url.name,
        argv=argv,
        environment=lambda: environment().only(_PASSED_ON),
        explain=explain_ssh_failure,
    )


def explain_ssh_failure(said: str, code: int) -> str:
    """Why there is no connection, and what to do about it."""
    last = said.splitlines()[-1].strip() if said else ""
    if re.search(_CHANGED, said):
        return (
            "its host key has changed. Someone may be answering in its place; if the change is known, remove the old "
            "key with `ssh-keygen -R` and connect once with ssh."
        )
    if re.search(_UNKNOWN, said):
        return "its host key is unknown. Connect once with ssh and check the key."
    if "Permission denied" in said or "Too many authentication failures" in said:
        return f"it refused to log in: {last} Pigeon uses keys and the agent of ssh, and never a password."
    if code == 127 or "/bin/sh" in last:
        return f"it has no /bin/sh: {last}"
    return last or (f"ssh ended with code {code}" if code >= 0 else "ssh does not answer")
