"""What surrounds an agent: variables, home, the folder that relative paths begin at, clock, ids, the terminal.

The caller of `pigeon.app.build` gives it, so that agents in one process can have different ones. The rooms below get
the values that they need from it and never ask the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from pigeon.config.paths import agent_dir
from pigeon.system import clock
from pigeon.system.ids import RANDOM_IDS, Ids
from pigeon.system.paths import absolute
from pigeon.wire.errors import StartupError

if TYPE_CHECKING:
    from pigeon.agent.inference import Pacing

# The pages of the documentation, as they are installed with the package and as they stand in the repository.
DOCS_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "docs")


def no_terminal(folder: str) -> str:
    """Where no person can be asked which session to resume."""
    raise StartupError("--resume needs a terminal to choose in; here use --session PATH|ID or --continue")


class Environment(Struct, frozen=True, kw_only=True):
    """The surroundings of one agent.

    `variables` may change while the agent runs (those of the process do when an extension sets one): they are read when
    they are needed. `cwd` is empty where the process has no working directory any more. `pick_session` is given a
    folder of sessions and returns the file that a person chose. `called` is the name of another agent of the family
    where the program was called by it. In a `reproducible` one the same happens each time: it is that of a recording.
    `pacing` says when requests may be sent, where others share what providers allow. `module_path` is where Python
    looks for modules, if the process is Pigeon's own: folders that commands in a sandbox can write are taken out of it.
    """

    variables: Mapping[str, str]
    home: str
    cwd: str
    called: str = ""
    now: Callable[[], int] = clock.now_ms
    ids: Ids = RANDOM_IDS
    reproducible: bool = False
    pick_session: Callable[[str], str] = no_terminal
    pacing: Pacing | None = None
    module_path: list[str] | None = None

    @property
    def temporary(self) -> str:
        """The folder for temporary files."""
        return next((self.variables[name] for name in ("TMPDIR", "TEMP", "TMP") if self.variables.get(name)), "/tmp")

    @property
    def homes(self) -> tuple[str, ...]:
        """The home that `~` means, and the one that the system has for the user."""
        import pwd

        try:
            return self.home, pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return (self.home,)

    def agent_dir(self, asked: str | None = None) -> str:
        """The folder of settings, models, keys and sessions."""
        return agent_dir(asked, self.variables, self.cwd, self.home, self.called)

    def programs_path(self, agent_dir: str, *also: str) -> str:
        """The PATH for programs that Pigeon itself runs outside a sandbox: no folder that commands could write."""
        from pigeon.trust.trust_file import programs_path

        return programs_path(agent_dir, self.variables.get("PATH"), *also)

    def absolute(self, path: str) -> str:
        """Where a path of the options leads."""
        return absolute(path, self.cwd, self.home)


def family_name(program: str) -> str:
    """The agent of the family whose name a program was called by; empty for any other name."""
    base = os.path.basename(program).removesuffix(".py").removesuffix(".exe")
    return base if base in ("pi", "omp", "xcsh") else ""


def process_environment(
    program: str = "", pick_session: Callable[[str], str] = no_terminal, module_path: list[str] | None = None
) -> Environment:
    """The surroundings of this process; the variables are those of the process, not a copy.

    `program` is how it was called.
    """
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = ""
    home = os.path.expanduser("~")
    return Environment(
        variables=os.environ,
        home=home,
        cwd=cwd,
        called=family_name(program),
        pick_session=pick_session,
        module_path=module_path,
    )
