"""Values that point elsewhere: `$NAME`, `${NAME}`, `!command`, and `$$`, `$!` for the signs themselves.

Used for keys and headers in `models.json` and `auth.json`. A missing variable or a failing command leaves the value
unresolved. What a command printed is kept for a while; its failures never are, so the next request tries again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pigeon.system.clock import monotonic_ms
from pigeon.system.process.start import ProcessOwner

COMMAND_TIMEOUT_S = 10.0
KEEP_MS = 300_000
MOST_OUTPUT = 64 * 1024
_REFERENCE = re.compile(r"\$(?:\$|!|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


class Values:
    """Resolves values against an environment; commands run in `cwd` as processes of `owner`."""

    def __init__(self, environ: Mapping[str, str], owner: ProcessOwner, cwd: str = "/", keep_ms: int = KEEP_MS) -> None:
        self._environ = environ
        self._owner = owner
        self._cwd = cwd
        self._keep_ms = keep_ms
        self._kept: dict[str, tuple[int, str]] = {}

    def configured(self, value: str, own: Mapping[str, str] | None = None) -> bool:
        """True if the value can be expected to resolve; no command is run to find out."""
        if value.startswith("!"):
            return bool(value[1:].strip())
        return bool(self.interpolated(value, own))

    def interpolated(self, value: str, own: Mapping[str, str] | None = None) -> str | None:
        """The text with its variables filled in; None if one is missing. `own` wins over the environment."""
        missing = False

        def put(found: re.Match[str]) -> str:
            nonlocal missing
            name = found[1] or found[2]
            if not name:
                return found[0][1]
            text = (own or {}).get(name) or self._environ.get(name)
            if not text:
                missing = True
            return text or ""

        text = _REFERENCE.sub(put, value)
        return None if missing else text

    async def resolve(self, value: str, own: Mapping[str, str] | None = None) -> str | None:
        """The value to use; None if it cannot be had."""
        if not value.startswith("!"):
            return self.interpolated(value, own) or None
        command = value[1:].strip()
        kept = self._kept.get(command)
        if kept and monotonic_ms() - kept[0] < self._keep_ms:
            return kept[1]
        printed = await self._printed(command, {**self._environ, **(own or {})})
        if printed:
            self._kept[command] = (monotonic_ms(), printed)
        return printed or None

    async def _printed(self, command: str, environment: Mapping[str, str]) -> str:
        """What the shell command wrote to its output, trimmed; empty on failure."""
        if not command:
            return ""
        from pigeon.system.process.run_program import run_program

        try:
            result = await run_program(
                self._owner,
                ["/bin/sh", "-c", command],
                cwd=self._cwd,
                environment=environment,
                timeout=COMMAND_TIMEOUT_S,
                limit=MOST_OUTPUT,
                term_grace=0,
            )
        except (OSError, ValueError):
            return ""
        return result.stdout.decode("utf-8", "replace").strip() if result.code == 0 and not result.killed else ""
