"""What a long conversation has for the model, parsed and converted before the first prompt, a bit at a time."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from pigeon.agent.inference import ModelMessage
from pigeon.session.activity import Activity
from pigeon.session.context.transcript import Transcript
from pigeon.session.model_choice import ModelChoice
from pigeon.wire.model import Model

# Entries that are read in one go: a few milliseconds. Each step compares what is converted already, so that very long
# conversations are not converted to their end.
READ_AHEAD = 200
CONVERTED_AHEAD = 20_000
# Where one step takes longer, each converts the same again, as for a long row of messages without an answer.
LONGEST_STEP = 0.05


class Preparation(Protocol):
    """What a provider does before the first request to a model, so that it is sent sooner."""

    async def warm(self, model: Model | None) -> None:
        """Load what the request will need."""
        ...

    def convert_ahead(self, model: Model, messages: list[ModelMessage]) -> None:
        """Convert the beginning of a conversation to the form of the model's API."""
        ...


async def read_ahead(transcript: Transcript, activity: Activity, models: ModelChoice, preparation: Preparation) -> None:
    """Parse and convert the conversation until a run begins, which does the rest itself."""
    for _ in range(0, len(transcript.visible_entries.lines), READ_AHEAD):
        if activity.is_busy or not transcript.parse_more_ahead(READ_AHEAD):
            break
        await asyncio.sleep(0)
    journal, model, messages = transcript.journal, models.model, transcript.model_messages
    for end in range(READ_AHEAD, min(len(messages), CONVERTED_AHEAD), READ_AHEAD):
        # After a change of the conversation or the model it would be in vain.
        unchanged = transcript.journal is journal and models.model is model
        if model is None or activity.is_busy or not unchanged:
            return
        began = time.monotonic()
        preparation.convert_ahead(model, messages[:end])
        if time.monotonic() - began > LONGEST_STEP:
            return
        await asyncio.sleep(0)
