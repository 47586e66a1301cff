"""The wall of macOS: a profile for `sandbox-exec`, in the language that its kernel reads.

Written from documentation and published profiles; not tested on a Mac. There are no mounts: kept and hidden places are
named in rules, and the last rule that matches decides. There is no process namespace either, so signals are limited to
what the command has started.
"""

from __future__ import annotations

from pigeon.sandbox.plan import MountPlan
from pigeon.sandbox.policy import SandboxPolicy

PROGRAM = "/usr/bin/sandbox-exec"
_ALWAYS = """(version 1)
(allow default)
(deny file-write*)
(deny signal)
(allow signal (target same-sandbox))
(deny process-info*)
(allow process-info* (target same-sandbox))
(deny mach-lookup)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo")
    (global-name "com.apple.system.notification_center") (global-name "com.apple.logd")
    (global-name "com.apple.trustd.agent") (global-name "com.apple.SecurityServer")
    (global-name "com.apple.bsd.dirhelper"))
(deny appleevent-send)
(deny iokit-open)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (regex #"^/dev/ttys[0-9]+$"))
"""
_NO_NETWORK = '(deny network*)\n(allow network* (local ip "localhost:*") (remote ip "localhost:*"))\n'
_NO_SOCKETS_OF_OTHERS = "(deny network* (remote unix-socket))\n"


def profile_of(policy: SandboxPolicy, plan: MountPlan) -> str:
    """The profile for a policy and its plan."""
    lines = [_ALWAYS, "" if policy.network else _NO_NETWORK, _NO_SOCKETS_OF_OTHERS]
    lines += [f"(allow file-write* (subpath {_quoted(path)}))\n" for path in plan.written]
    for mount in plan.mounts:
        if mount.kind == "keep":
            lines.append(f"(deny file-write* (subpath {_quoted(mount.path)}))\n")
        elif mount.kind == "pin":
            # Its contents may change, not its name.
            lines.append(f"(deny file-write-unlink (literal {_quoted(mount.path)}))\n")
    hidden = [mount.path for mount in plan.mounts if mount.kind.startswith("hide")]
    lines += [f"(deny file-read* file-write* (subpath {_quoted(path)}))\n" for path in hidden]
    shown = [mount.source for mount in plan.mounts if mount.kind == "show"]
    lines += [f"(allow file-read* (subpath {_quoted(path)}))\n" for path in shown]
    inside = [path for path in plan.written if any(path.startswith(f"{folder}/") for folder in policy.private)]
    lines += [f"(allow file-read* file-write* (subpath {_quoted(path)}))\n" for path in inside]
    return "".join(lines)


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
