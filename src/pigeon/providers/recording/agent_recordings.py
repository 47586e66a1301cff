"""How `--record FILE` and the model `recorded/FILE` change an agent.

A recorded agent reads its clock through the recording, and has reproducible ids. A replaying agent has the models, the
clock and the ids of the recorded run, and no network; work whose order depends on timing is done in one fixed order, so
that the same recording gives the same events.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from pigeon import __version__
from pigeon.agent.interfaces import ModelProvider
from pigeon.providers.http.recorders import AnswerSource, ExchangeRecorder
from pigeon.providers.local_models import RECORDED
from pigeon.secrets.redactor import Redactor
from pigeon.system.clock import parse_speed, sleep_ms
from pigeon.system.environment import DOCS_FOLDER, Environment
from pigeon.system.ids import Ids
from pigeon.wire.errors import StartupError
from pigeon.wire.model import Model, ThinkingLevel

if TYPE_CHECKING:
    from pigeon.providers.recording.playback import Playback, PlaybackOptions
    from pigeon.providers.recording.reader import Recording
    from pigeon.providers.recording.recorded_lines import AgentLine
    from pigeon.providers.recording.writer import RecordingWriter

Report = Callable[[str], None]


class AgentRecordings:
    """The recording that an agent writes, and the one that it replays; most agents have neither.

    `asked` is the requested model, `record` the file to record in. The agent is built with `environment`.
    """

    def __init__(
        self,
        asked: str,
        record: str | None,
        environment: Environment,
        redactor: Redactor,
        recorders: Sequence[ExchangeRecorder],
        report: Report,
    ) -> None:
        self._redactor = redactor
        self._recorders = recorders
        self._writer: RecordingWriter | None = None
        self._recording: Recording | None = None
        self._playback: Playback | None = None
        self._asked: PlaybackOptions | None = None
        if asked.startswith(f"{RECORDED}/"):
            environment = self._open_recording(asked, record, environment)
        if record is not None:
            environment = self._start_recording(record, environment, report)
        self.environment = environment

    @property
    def replayed_agent(self) -> AgentLine | None:
        """The agent of the recording that is replayed, or None."""
        return None if self._recording is None else self._recording.agent

    def _open_recording(self, asked: str, record: str | None, environment: Environment) -> Environment:
        from pigeon.providers.recording.reader import Recording

        path, self._asked = _split_options(asked.partition("/")[2], environment)
        if record is not None and os.path.realpath(environment.absolute_path(record)) == path:
            raise StartupError(f"--record {record} would overwrite the recording that is to be played")
        recording = self._recording = Recording(path)
        if not recording.agent.model:
            raise StartupError(f"{path} was recorded without a model, so there is none to play")
        return replace(environment, now=recording.next_clock_reading, ids=Ids(recording.header.seed), reproducible=True)

    def _start_recording(self, record: str, environment: Environment, report: Report) -> Environment:
        from pigeon.providers.recording.writer import RecordingWriter
        from pigeon.system.private_log import PrivateLog

        log = PrivateLog(environment.absolute_path(record), "--record", report)
        self._writer = RecordingWriter(log, self._redactor, __version__, environment.now)
        if self._recording is not None:
            return replace(environment, now=self._writer.record_clock_reading)
        return replace(environment, now=self._writer.record_clock_reading, ids=self._writer.ids)

    def sleep(self, ms: float) -> Awaitable[None]:
        """Wait between two attempts: for so long, or as the recorded run did."""
        asleep = sleep_ms if self._playback is None else self._playback.sleep
        return asleep(ms) if self._writer is None else self._writer.sleep(ms, asleep)

    @property
    def models(self) -> list[Model] | None:
        """The models of the replayed recording instead of the user's, or None."""
        return None if self._recording is None else self._recording.agent.models

    @property
    def recorders(self) -> list[ExchangeRecorder]:
        """What is shown every exchange."""
        return [*self._recorders, *([self._writer] if self._writer else [])]

    def make_answer_source(self, folders: dict[str, str]) -> AnswerSource | None:
        """Answers in place of the network for an agent in these folders; None if the network is used."""
        if self._recording is None or self._asked is None:
            return None
        from pigeon.providers.recording.folders import FolderNames
        from pigeon.providers.recording.playback import Playback

        names = FolderNames(self._recording.agent.folders, folders)
        self._playback = Playback(self._recording, self._asked, names, self._redactor.mask)
        return self._playback

    def wrap_provider(self, provider: ModelProvider) -> ModelProvider:
        """The provider; in a replay, one whose answers name the folders of this machine."""
        return provider if self._playback is None else self._playback.wrap_provider(provider)

    def record_agent(
        self, model: Model | None, level: ThinkingLevel, available: list[Model], folders: dict[str, str]
    ) -> None:
        if self._writer is not None:
            self._writer.record_agent(model, level, available, folders)

    def folders_by_purpose(self, cwd: str, agent_dir: str, outputs: str) -> dict[str, str]:
        """The folders of an agent by purpose; a replay elsewhere has other paths for them."""
        home = self.environment.home
        return {"cwd": cwd, "agent": agent_dir, "outputs": outputs, "docs": DOCS_FOLDER, "home": home}


def _split_options(text: str, environment: Environment) -> tuple[str, PlaybackOptions]:
    """The path and the options behind its question mark: `FILE?match=loose&speed=2`; raises `StartupError`."""
    from urllib.parse import parse_qsl

    from pigeon.providers.recording.playback import PlaybackOptions, RecordingMatch

    path = os.path.realpath(environment.absolute_path(text))
    if "?" not in text or os.path.exists(path):
        return path, PlaybackOptions()
    file, _, query = text.rpartition("?")
    options = PlaybackOptions()
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "match" and value in get_args(RecordingMatch):
            options = replace(options, match=value)
        elif name == "speed" and (speed := parse_speed(value)) is not None:
            options = replace(options, speed=speed)
        else:
            known = "match=strict, match=loose, speed=max and speed=NUMBER"
            raise StartupError(f'{RECORDED}/{text}: "{name}={value}" is not known. There are {known}')
    return os.path.realpath(environment.absolute_path(file)), options
