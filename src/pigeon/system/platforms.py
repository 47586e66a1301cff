"""On which systems agents can run: checked before modules are imported that only those systems have. And how to install
further packages for this installation."""

from __future__ import annotations

import os
import sys

WINDOWS = (
    "Pigeon runs on Linux and macOS, and not on Windows itself. Install it in WSL, the Linux inside Windows, and start "
    "it there: https://learn.microsoft.com/windows/wsl/install"
)


def unsupported_reason() -> str | None:
    """Why no agent can run on this system, or None."""
    return WINDOWS if sys.platform == "win32" else None


def make_install_command(*packages: str) -> str:
    """The command that installs packages for Pigeon: pipx and uv have given it a separate environment."""
    import shlex

    wanted = shlex.join(packages)
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject pigeon-agent {wanted}"
    python = shlex.quote(sys.executable)
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"
