"""Taking extensions in: each in a thread of its own, with its flags; one that fails is reported and left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from pigeon.extensions.public.api import Extension
from pigeon.extensions.public.context import Place
from pigeon.extensions.public.failures import ExtensionFailed
from pigeon.extensions.runtime.bridge import Bridge
from pigeon.extensions.runtime.discovery import Source
from pigeon.extensions.runtime.dispatcher import Team
from pigeon.extensions.runtime.extension_thread import Workshop
from pigeon.extensions.runtime.loaded_extension import Crew, Member
from pigeon.extensions.runtime.loading import loaded
from pigeon.extensions.runtime.process_exits import guard, mend
from pigeon.extensions.runtime.session_access import Reach

SWITCH_SECONDS = 0.001


class Boarding:
    """Loads extensions into a team."""

    def __init__(self, team: Team, crew: Crew, bridge: Bridge, cwd: str, mode: str, flags: Mapping[str, bool | str]):
        self._team = team
        self._crew = crew
        self._bridge = bridge
        self._cwd = cwd
        self._mode = mode
        self._flags = flags
        self._seen: set[str] = set()
        self.trusted = False
        guard()
        # A busy extension gives the interpreter up this often, so the protocol stays as quick as it can.
        sys.setswitchinterval(SWITCH_SECONDS)

    async def take(self, sources: Sequence[Source]) -> list[Member]:
        """Load these, each once; never raises for one that fails."""
        taken = []
        for source in sources:
            member = await self._one(source) if self._is_new(source) else None
            if member is not None:
                taken.append(member)
        return taken

    def end(self) -> None:
        """Leave the process as an extension should have left it."""
        mend()

    def _is_new(self, source: Source) -> bool:
        real = os.path.realpath(source.path)
        new = real not in self._seen
        self._seen.add(real)
        return new

    async def _one(self, source: Source) -> Member | None:
        def stray(text: str) -> None:
            self._bridge.post(lambda: self._team.reports(source.path, "background", text))

        workshop = Workshop(os.path.basename(source.path), stray)
        try:
            extension = await loaded(source, workshop)
        except ExtensionFailed as error:
            workshop.close()
            self._team.reports(source.path, "load", str(error))
            return None
        self._give_flags(extension)
        place = Place(extension.name, self._mode, self._cwd, self.trusted, workshop.loop)
        reach = Reach(extension.name, extension.needs, self._bridge)
        member = Member(extension, source, workshop, reach, place, self._crew)
        extension.runtime = member
        self._team.join(member)
        return member

    def _give_flags(self, extension: Extension) -> None:
        for name, flag in extension.registry.flags.items():
            if name in self._flags:
                flag.give(self._flags[name])
