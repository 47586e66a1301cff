"""On which systems agents can run: checked before modules are imported that only those systems have."""

from __future__ import annotations

import sys

WINDOWS = (
    "Pigeon runs on Linux and macOS, and not on Windows itself. Install it in WSL, the Linux inside Windows, and start "
    "it there: https://learn.microsoft.com/windows/wsl/install"
)


def unsupported_reason() -> str | None:
    """Why no agent can run on this system, or None."""
    return WINDOWS if sys.platform == "win32" else None
