"""Job notices: the model learns between two turns that something in the background has ended."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.session.jobs import Jobs
from pigeon.session.policies.policy import CompletedTurn, RunPolicy


class JobNotices(RunPolicy):
    """Adds what has ended since the model was last told."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def collect_notices(self, turn: CompletedTurn) -> Sequence[str]:
        return self._jobs.take_notices() if self._jobs.has_notices else ()
