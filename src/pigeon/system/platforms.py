"""On which systems agents can run: the program and the library ask before they import what only those have. And how
more packages come to where Pigeon is installed."""

from __future__ import annotations

import os
import sys

WINDOWS = (
    "Pigeon runs on Linux and macOS, and not on Windows itself. Install it in WSL, the Linux inside Windows, and start "
    "it there: https://learn.microsoft.com/windows/wsl/install"
)


def unsupported_reason() -> str | None:
    """Why no agent can run on this system; none where one can."""
    return WINDOWS if sys.platform == "win32" else None


def install_command(*packages: str) -> str:
    """What to type so that Pigeon finds these packages: pipx and uv have given it an environment of its own."""
    import shlex

    wanted = shlex.join(packages)
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject pigeon-agent {wanted}"
    python = shlex.quote(sys.executable)
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"
