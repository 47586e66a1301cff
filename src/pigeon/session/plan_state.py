"""Whether plan mode is in force: set by the permissions, read at each request."""

from __future__ import annotations


class PlanState:
    """`active` is True in plan mode."""

    def __init__(self) -> None:
        self.active = False

    def set_active(self, active: bool) -> None:
        self.active = active
