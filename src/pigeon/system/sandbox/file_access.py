"""Files as the tools of Pigeon open them behind the wall: the policy is asked about the place that is held.

Commands are held by the kernel, tools run in the agent: this is the same policy in code. `tools/catalog` gives this
resolver to every tool that opens files, in place of the plain one.
"""

from __future__ import annotations

from collections.abc import Callable

from pigeon.system.paths import HeldPath, PathResolver
from pigeon.system.sandbox.plan import kept_places
from pigeon.system.sandbox.policy import SandboxPolicy
from pigeon.wire.errors import ToolFailed


class WalledPaths(PathResolver, frozen=True):
    """Resolves paths as the plain resolver does, and refuses what the policy of the moment does not allow."""

    sandbox: Callable[[], SandboxPolicy | None]

    def held(self, path: str, for_reading: bool = True) -> HeldPath:
        """What a path names; raises `ToolFailed` for what the sandbox keeps from the tool."""
        held = PathResolver.held(self, path, for_reading)
        policy = self.sandbox()
        if policy is None:
            return held
        kept = [] if for_reading else kept_places(policy)
        why = policy.refusal(held.place, not for_reading, kept)
        if why is not None:
            held.close()
            raise ToolFailed(
                f"{path}: {why}. Do not look for a way around it; tell the user what is needed"
                + (", or ask with a bash command (unsandboxed: true and a reason)." if not for_reading else ".")
            )
        return held

    def conceals(self, place: str) -> bool:
        """Whether what stands at a real path is hidden."""
        policy = self.sandbox()
        return policy is not None and policy.refusal(place, writes=False) is not None
