"""The checkpoints of an agent, from its settings; and what an earlier process has left half restored."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from pigeon.checkpoints.on_demand import CheckpointOptions, CheckpointsOnDemand
from pigeon.config.settings import Settings
from pigeon.secrets.redactor import Redactor
from pigeon.session.context.transcript import Transcript
from pigeon.session.history.repository import SessionRepository
from pigeon.system.environment import Environment
from pigeon.system.process.start import ProcessOwner

FOLDER = "checkpoints"
COMPLETED = "An undo in {} that had been interrupted was completed."


def checkpoints_folder(agent_dir: str) -> str:
    """Where the checkpoints of all conversations are."""
    return os.path.join(agent_dir, FOLDER)


async def complete_interrupted_undo(agent_dir: str, report: Callable[[str], None]) -> None:
    """Complete what a killed process has begun to restore."""
    store = checkpoints_folder(agent_dir)
    if not os.path.isdir(f"{store}/pending"):  # noqa: ASYNC240 - one look, before anything runs
        return
    from pigeon.checkpoints.restoration import complete_restorations

    for folder in await asyncio.to_thread(complete_restorations, store):
        report(COMPLETED.format(folder))


def make_checkpoints(
    settings: Settings,
    environment: Environment,
    agent_dir: str,
    repository: SessionRepository,
    transcript: Transcript,
    redactor: Redactor,
    report: Callable[[str], None],
    machine: str,
) -> CheckpointsOnDemand:
    """The checkpoints of a conversation; no code is loaded before something is to be recorded."""
    undo = settings.undo
    options = CheckpointOptions(
        store=checkpoints_folder(agent_dir),
        enabled=undo.enabled,
        max_files=undo.max_files,
        max_bytes=undo.max_bytes,
        max_file_bytes=undo.max_file_bytes,
        keep_bytes=undo.keep_bytes,
        keep_days=undo.keep_days,
        home=environment.home,
        variables=environment.variables,
        # Behind the wall of commands the store could not be written; git runs nothing here that a model has said.
        processes=ProcessOwner(),
        own_places=(agent_dir, repository.folder),
        now=environment.now,
        new_id=environment.ids.checkpoint_id,
        machine=machine,
    )
    return CheckpointsOnDemand(options, transcript, redactor.mask_text, report)
