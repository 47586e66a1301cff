"""What surrounds an agent: variables, home, the folder where relative paths begin, clock, ids, the terminal.

The caller of `pigeon.app.build` provides it, so that agents in one process can have different ones. Packages get it, or
the values that they need from it, and never read the process's own; `pigeon.app.environment` does that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from msgspec import Struct

from pigeon.system import clock
from pigeon.system.ids import RANDOM_IDS, Ids
from pigeon.system.paths import absolute_path
from pigeon.wire.errors import StartupError

# The folder in which Pigeon keeps its files, in the home and in projects.
OWN_NAME = ".pigeon"
# The folders that the other agents of the family keep in the home, by the names of their programs.
FAMILY = {"pi": ".pi", "pi-0.73": ".pi", "omp": ".omp", "xcsh": ".xcsh"}
# The pages of the documentation, as they are installed with the package and as they are in the repository.
DOCS_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "docs")


def refuse_to_choose_session(folder: str) -> str:
    """The error message if no person can be asked which session to resume."""
    raise StartupError("--resume needs a terminal to choose in; here use --session PATH|ID or --continue")


class Environment(Struct, frozen=True, kw_only=True):
    """The surroundings of one agent.

    `variables` may change while the agent runs (those of the process do when an extension sets one), so they are read
    when they are needed. `cwd` is empty if the process has no working directory any more. `pick_session` is given a
    folder of sessions and returns the file that a person chose. `called` is the name of another agent of the family if
    the program was called by that name. A `reproducible` environment gives the same results each time, as for a
    recording. `module_path` is Python's module search path, if the process is Pigeon's own: folders that commands in a
    sandbox can write are removed from it.
    """

    variables: Mapping[str, str]
    home: str
    cwd: str
    called: str = ""
    now: Callable[[], int] = clock.now_ms
    ids: Ids = RANDOM_IDS
    reproducible: bool = False
    pick_session: Callable[[str], str] = refuse_to_choose_session
    module_path: list[str] | None = None

    @property
    def temporary_folder(self) -> str:
        return next((self.variables[name] for name in ("TMPDIR", "TEMP", "TMP") if self.variables.get(name)), "/tmp")

    @property
    def homes(self) -> tuple[str, ...]:
        """The home that `~` means, and the user's home according to the system."""
        import pwd

        try:
            return self.home, pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return (self.home,)

    def agent_dir(self, asked: str | None = None) -> str:
        """The folder of settings, models, keys and sessions: the requested one, else a variable's, else in the home.

        A program that is `called` like another agent of the family replaces it: it uses the folder of that agent,
        unless Pigeon's own exists.
        """
        named = asked or self.variables.get("PIGEON_CODING_AGENT_DIR") or self.variables.get("PI_CODING_AGENT_DIR")
        if named:
            return self.absolute_path(named)
        own = os.path.join(self.home, OWN_NAME, "agent")
        if self.called not in FAMILY or os.path.lexists(own):
            return own
        folder = FAMILY[self.called]
        # Only oh-my-pi and xcsh know this variable, which names a folder in the home.
        renamed = self.variables.get("PI_CONFIG_DIR") if folder != ".pi" else None
        return os.path.join(self.home, renamed or folder, "agent")

    def absolute_path(self, path: str) -> str:
        """A path of the options as an absolute path."""
        return absolute_path(path, self.cwd, self.home)
