"""On which systems agents can run. The program and the library ask before they import what only those have."""

from __future__ import annotations

import sys

WINDOWS = (
    "Pigeon runs on Linux and macOS, and not on Windows itself. Install it in WSL, the Linux inside Windows, and start "
    "it there: https://learn.microsoft.com/windows/wsl/install"
)


def why_unsupported() -> str | None:
    """Why no agent can run on this system; none where one can."""
    return WINDOWS if sys.platform == "win32" else None
