"""How Pigeon's file tools open files when there is a sandbox: the policy is applied to the held path.

The kernel confines commands, but tools run in the agent: this applies the same policy in code. `tools/catalog` gives
this resolver, instead of the plain one, to every tool that opens files.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from pigeon.sandbox.plan import kept_places
from pigeon.sandbox.policy import SandboxPolicy, normalize_spelling
from pigeon.system.held_paths import HeldPath
from pigeon.system.paths import PathResolver
from pigeon.wire.errors import ToolFailed


class WalledPaths(PathResolver, frozen=True):
    """Resolves paths like the plain resolver, and refuses what the current policy does not allow."""

    sandbox: Callable[[], SandboxPolicy | None]

    def hold_path(self, path: str, for_reading: bool = True) -> HeldPath:
        """The file or folder that a path names; raises `ToolFailed` if the policy denies it to the tool."""
        held = PathResolver.hold_path(self, path, for_reading)
        policy = self.sandbox()
        if policy is None:
            return held
        try:
            why = policy.refusal_reason(held.place, not for_reading, [] if for_reading else kept_places(policy))
        except OSError as error:
            why = str(error)
        if why is not None:
            held.close()
            raise ToolFailed(
                f"{path}: {why}. Do not look for a way around it; tell the user what is needed"
                + (", or ask with a bash command (unsandboxed: true and a reason)." if not for_reading else ".")
            )
        return held

    def make_hidden_path_test(self) -> Callable[[str], bool]:
        """A test for real paths: whether the current policy hides them or a folder above them."""
        policy = self.sandbox()
        secrets = frozenset() if policy is None else frozenset(map(normalize_spelling, policy.iterate_secret_paths()))

        def is_hidden(place: str) -> bool:
            path = normalize_spelling(place)
            if policy is not None and (policy.is_private(place) or policy.is_device_or_process_path(place)):
                return True
            while path not in ("", "/"):
                if path in secrets:
                    return True
                path = os.path.dirname(path)
            return False

        return is_hidden
