"""The sandbox of an agent: what options and settings request, checked against its working folder, and the wall.

Precedence: an option overrides the user's settings, and the settings of a trusted project can only tighten the result.
A request that cannot be fulfilled ends the start: nothing here runs a command without its wall, and a policy that
contradicts itself is an error, never a weaker policy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pigeon.config.layers import Layers
from pigeon.sandbox.written_folders import WRITTEN, record_written_folders, written_folders
from pigeon.system.environment import Environment
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment, plain_environment
from pigeon.wire.answers import SandboxState
from pigeon.wire.base import ABSENT, Absent, value_or_default
from pigeon.wire.errors import BadRecord, Refusal, StartupError

if TYPE_CHECKING:
    from pigeon.sandbox.policy import SandboxPolicy
    from pigeon.sandbox.survey import FolderSurvey
    from pigeon.sandbox.wall import Wall, WallBuilder

_KEYS = ("mode", "network", "writable", "hostShell", "passVariables")
# The strictest last.
_MODES = ("off", "workspace", "read-only")
_HOST_SHELL = ("inside", "outside")
_PROBE_SECONDS = 20.0
# Tries to write beside its temporary folder, and prints Linux's data about the process.
_PROBE = """
if (: > "$1") 2> /dev/null; then echo open; else echo closed; fi
[ -e /proc/self/status ] || exit 0
"$2" /proc/self/ns/pid
while read -r name value; do
    case $name in NoNewPrivs: | Seccomp:) echo "$name$value" ;; esac
done < /proc/self/status
"""
MANY_MOUNTS = 250
INSTALL = "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap` or the like)"
_OTHER_FOLDER = "Work in the folder of a project, or start with --sandbox read-only or --sandbox off"
_LEAVE_OUT = "Leave it out of sandbox.writable"


class AskedSandbox(Struct, frozen=True):
    """The requests of one source; what a source leaves open is decided by the next one."""

    mode: str | None = None
    network: bool | None = None
    writable: tuple[str, ...] | None = None
    host_shell: str | None = None
    pass_variables: tuple[str, ...] = ()


class SandboxControl:
    """The wall around the commands of one agent, which follows its conversation from folder to folder.

    `asked` are the requests of the options. `find_extensions` returns the places of the extensions that options and the
    given settings name. `on_writable` is called with the folders that commands can write from now on; it may raise
    `OSError` and `BadRecord`. `report` is called with requests that cannot be fulfilled while the agent runs.
    """

    def __init__(
        self,
        asked: AskedSandbox,
        environment: Environment,
        agent_dir: str,
        layers: Layers,
        processes: ProcessOwner,
        *,
        find_extensions: Callable[[Sequence[str]], list[str]],
        on_writable: Callable[[Sequence[str]], None],
        report: Callable[[str], None],
    ) -> None:
        self._environment = environment
        self._agent_dir = agent_dir
        self._layers = layers
        self._processes = processes
        self._find_extensions = find_extensions
        self._on_writable = on_writable
        self._report = report
        self._by_options = asked
        self._artifacts: Callable[[], str | None] = lambda: None
        self._scratch: str | None = None
        self._surveyed: FolderSurvey | None = None
        self._builder: tuple[WallBuilder, str, bool] | None = None
        self._wall: Wall | None = None
        self._asked = False
        if self._by_options.mode not in (None, *_MODES):
            raise StartupError(f'--sandbox: "{self._by_options.mode}" is not one of {", ".join(_MODES)}')

    @property
    def processes(self) -> ProcessOwner:
        """The owner of the agent's commands, with the wall if there is one."""
        return self._processes

    @property
    def policy(self) -> SandboxPolicy | None:
        """The policy for commands and file tools now; None without a sandbox."""
        return None if self._wall is None else self._wall.policy

    def is_enclosing(self) -> bool:
        """Whether commands run behind a wall now."""
        return self._wall is not None

    def hidden_reason(self, place: str) -> str | None:
        """Why the file at a real path must not be read for the model; None if it may be, or without a sandbox."""
        return None if self._wall is None else self._wall.policy.refusal_reason(place, writes=False)

    def set_artifacts_source(self, artifacts: Callable[[], str | None]) -> None:
        """Set the function that returns the session's folder of full outputs; commands may write there."""
        self._artifacts = artifacts

    def _current_artifacts(self) -> str | None:
        return self._artifacts()

    def state(self) -> SandboxState | Absent:
        """The state for the host; absent if no sandbox was requested."""
        if self._wall is None:
            return SandboxState(mode="off") if self._asked else ABSENT
        policy = self._wall.policy
        return SandboxState(
            mode=policy.mode,
            network=policy.network,
            writable=[path for path in policy.roots if path != policy.temporary_folder],
            host_shell="outside" if policy.host_shell_outside else "inside",
            builder=self._wall.builder,
        )

    def resolve_policy(self, cwd: str) -> SandboxPolicy | None:
        """The policy that the sources request for a conversation in this folder; raises `StartupError` for an invalid
        one."""
        unclear = self._layers.find_unusable_sandbox_file(with_users=self._by_options.mode is None)
        if unclear is not None:
            raise StartupError(
                f"{unclear} cannot be used but mentions the sandbox, so Pigeon cannot tell whether one is wanted. "
                "Fix the file (`pigeon doctor` says what is wrong with it), or decide with --sandbox"
            )
        if self._layers.has_unreadable_file(with_users=self._by_options.mode is None):
            # It is unknown whether a sandbox is requested, so it is the strictest; the readers of the file report it.
            self._asked = True
            return self._make_policy(cwd, "read-only", False, AskedSandbox(), False)
        user = _parse_settings(self._layers.user_sandbox, "sandbox")
        projects = [_parse_settings(given, f"{path}: sandbox") for path, given in self._layers.project_sandboxes]
        own = self._by_options
        modes = [own.mode or user.mode or "off", *(project.mode or "off" for project in projects)]
        mode = max(modes, key=_MODES.index)
        self._asked = any(asked.mode is not None for asked in (own, user, *projects))
        if mode == "off":
            return None
        if not sys.platform.startswith("linux"):
            raise StartupError(
                "The requested sandbox is not available on this system, only on Linux, so nothing was started. "
                "Start with --sandbox off"
            )
        network = bool(own.network or user.network) and not any(project.network is False for project in projects)
        inside = any(project.host_shell == "inside" for project in projects)
        return self._make_policy(cwd, mode, network, user, user.host_shell == "outside" and not inside)

    def _make_policy(self, cwd: str, mode: str, network: bool, user: AskedSandbox, outside: bool) -> SandboxPolicy:
        from pigeon.sandbox.policy import SandboxPolicy, is_inside, private_folders, secret_places

        environment = self._environment
        root = os.path.realpath(cwd)
        extra = [self._resolve_writable_root(path, cwd) for path in user.writable or ()]
        loaded = list(self._paths_of_loaded_code())
        hidden = secret_places(environment.homes, self._agent_dir, environment.variables)
        hidden = (*hidden, *_find_duplicate_mount_paths(hidden))
        for path in (*((root,) if mode == "workspace" else ()), *extra):
            self._check_writable_root(path, hidden, _OTHER_FOLDER if path == root else _LEAVE_OUT)
            if inner := next((place for place in loaded if is_inside(path, place)), None):
                raise StartupError(
                    f"Sandbox: Pigeon itself runs from {inner}, so commands must not write {path}. "
                    + (_OTHER_FOLDER if path == root else _LEAVE_OUT)
                )
        return SandboxPolicy(
            mode=mode,  # type: ignore[arg-type]
            network=network,
            host_shell_outside=outside,
            root=root,
            writable=tuple(dict.fromkeys(extra)),
            scratch=self._ensure_scratch_folder(),
            hidden=hidden,
            survey=self._ensure_survey(),
            private=private_folders(environment.homes, self._agent_dir),
            pass_variables=user.pass_variables,
            own=tuple(dict.fromkeys([*_own_code_folders(root), *loaded])),
        )

    def _paths_of_loaded_code(self) -> Iterator[str]:
        """The agent's folder, and extensions: those that options and settings name, and the targets of links in
        them."""
        from pigeon.sandbox.policy import resolve_link_steps

        yield os.path.realpath(self._agent_dir)
        for path in self._find_extensions(value_or_default(self._layers.settings.extensions, [])):
            ways = resolve_link_steps(path)
            yield from (*ways, *self._ensure_survey().link_targets(ways[-1]))

    def _ensure_survey(self) -> FolderSurvey:
        """The survey for the life of the agent: it remembers what was in a folder before the first command."""
        if self._surveyed is None:
            from pigeon.sandbox.survey import FolderSurvey, git_settings_in, shared_git_files

            homes, variables = self._environment.homes, self._environment.variables
            self._surveyed = FolderSurvey(homes, shared_git_files(homes, variables), git_settings_in(variables))
        return self._surveyed

    def _resolve_writable_root(self, path: str, cwd: str) -> str:
        from pigeon.sandbox.policy import is_inside, resolve_link_steps
        from pigeon.system.paths import absolute_path

        full = absolute_path(path, cwd, self._environment.home)
        if not os.path.isdir(full):
            raise StartupError(f"sandbox.writable: {full} is not a folder. Create it, or leave it out")
        *links, real = resolve_link_steps(full)
        written = [os.path.realpath(cwd), *self._read_earlier_folders()]
        if turned := next((link for link in links if any(is_inside(link, folder) for folder in written)), None):
            raise StartupError(
                f"sandbox.writable: {full} leads through the link {turned}. It lies in a project or in a folder that "
                f"commands could write to, so it might lead anywhere. Name the folder itself ({real}) if you want that"
            )
        return real

    def _check_writable_root(self, root: str, hidden: tuple[str, ...], advice: str = _OTHER_FOLDER) -> None:
        """Refuse a writable folder that contains protected places, or that is inside a hidden one."""
        from pigeon.sandbox.policy import is_inside

        if any(is_inside(root, kernel) for kernel in ("/dev", "/proc", "/sys")) and not is_inside(root, "/dev/shm"):
            raise StartupError(f"Sandbox: {root} belongs to the kernel, and commands must not write there. {advice}")
        for home in map(os.path.realpath, self._environment.homes):
            if is_inside(home, root):
                raise StartupError(
                    f"Sandbox: {root} is or contains the home folder {home}, so nothing there would be safe from "
                    f"commands that write. {advice}"
                )
        scratch = self._ensure_scratch_folder()
        if is_inside(scratch, root):
            raise StartupError(
                f"Sandbox: {root} contains {scratch}, which Pigeon needs and commands must not change. {advice}. "
                "In the folder for temporary files, make only a folder in it writable, or set TMPDIR to another one"
            )
        for secret in hidden:
            if is_inside(root, os.path.realpath(secret)):
                raise StartupError(f"Sandbox: {root} is in {secret}, which is hidden from commands. {advice}")

    def _ensure_scratch_folder(self) -> str:
        if self._scratch is None:
            import tempfile

            parent = self._environment.temporary_folder
            try:
                self._scratch = os.path.realpath(tempfile.mkdtemp(prefix="pigeon-sandbox-", dir=parent))
                os.mkdir(os.path.join(self._scratch, "tmp"), 0o700)
                with open(os.path.join(self._scratch, "empty"), "wb"):
                    pass
                os.chmod(os.path.join(self._scratch, "empty"), 0o444)
            except OSError as error:
                raise StartupError(f"Sandbox: no temporary folder in {parent}: {error.strerror}") from error
        return self._scratch

    def enclose_commands(self, cwd: str) -> None:
        """Enclose commands as requested for this folder; raises `StartupError`.

        If the wall could not be tried before, the first command tries it, and is not run if that fails.
        """
        policy = self.resolve_policy(cwd)
        if policy is None:
            if self._wall is None:
                return
            # A conversation that has had a wall keeps one: in a folder that requests none, that of the last folder.
            policy = self._move_policy(self._wall.policy, cwd)
        from pigeon.sandbox.policy import Unprotectable
        from pigeon.sandbox.second_names import make_checked_plan

        self._wall = self._make_wall(policy, *(self._builder or self._choose_builder(policy)))
        self._use_wall(self._wall)
        try:
            make_checked_plan(policy)
        except Unprotectable as error:
            raise StartupError(f"Sandbox: {error}") from None
        self._drop_writable_module_paths(policy)
        try:
            record_written_folders(self._agent_dir, policy.roots[:-1])
            self._on_writable(policy.roots[:-1])
        except (OSError, BadRecord) as error:
            raise self._make_written_folders_error(error) from None

    def _drop_writable_module_paths(self, policy: SandboxPolicy) -> None:
        """Import nothing from a folder that commands can write or could, such as one that `PYTHONPATH` names."""
        from pigeon.sandbox.policy import is_exactly_inside, is_inside

        found = self._environment.module_path
        if found is not None:
            places = {path: os.path.realpath(os.path.join(self._environment.cwd, path)) for path in found}
            kept = {path: any(is_exactly_inside(place, own) for own in policy.own) for path, place in places.items()}
            written = self._list_written_folders(policy)
            found[:] = [
                path for path in found if kept[path] or not any(is_inside(places[path], root) for root in written)
            ]

    def _list_written_folders(self, policy: SandboxPolicy) -> list[str]:
        """The folders that commands can write now, or could in an earlier session; raises `StartupError`."""
        return [*policy.roots, *self._read_earlier_folders()]

    def _read_earlier_folders(self) -> list[str]:
        try:
            return written_folders(self._agent_dir)
        except (OSError, BadRecord) as error:
            raise self._make_written_folders_error(error) from None

    def _make_written_folders_error(self, error: Exception) -> StartupError:
        return StartupError(
            f"Sandbox: {os.path.join(self._agent_dir, WRITTEN)} cannot be used ({error}). It lists the folders that "
            "commands could write, so that nothing they leave there is trusted later. Fix it"
        )

    def check_folder(self, cwd: str) -> None:
        """Whether the conversation may move to this folder; raises `Refusal`."""
        try:
            policy = self.resolve_policy(cwd) or (
                None if self._wall is None else self._move_policy(self._wall.policy, cwd)
            )
            if policy is not None:
                from pigeon.sandbox.second_names import make_checked_plan

                make_checked_plan(policy)
        except (StartupError, OSError) as error:
            raise Refusal(str(error)) from error

    def use_folder(self, cwd: str, trusted: bool, harmless: bool) -> None:
        """The same as `enclose` while the agent runs: if a request cannot be fulfilled, the policy becomes as strict as
        possible."""
        try:
            self.enclose_commands(cwd)
        except StartupError as error:
            self._report(f"{error}. Until that is fixed, commands write nothing and have no network")
            self._enclose_strictly(cwd, network=False)

    def enclose_key_commands(self, cwd: str) -> None:
        """Without a conversation, enclose only commands that print keys; any requested wall is then read-only."""
        try:
            policy = self.resolve_policy(cwd)
        except StartupError:
            self._enclose_strictly(cwd, network=False)
        else:
            if policy is not None:
                self._enclose_strictly(cwd, policy.network)

    def _enclose_strictly(self, cwd: str, network: bool) -> None:
        policy = self._make_policy(cwd, "read-only", network, AskedSandbox(), False)
        self._wall = self._make_wall(policy, *(self._builder or self._choose_builder(policy)))
        self._use_wall(self._wall)

    def _move_policy(self, policy: SandboxPolicy, cwd: str) -> SandboxPolicy:
        from msgspec.structs import replace

        root = os.path.realpath(cwd)
        if policy.mode == "workspace":
            self._check_writable_root(root, policy.hidden)
        return replace(policy, root=root)

    def _use_wall(self, wall: Wall) -> None:
        """Use this wall. Commands that print keys see all variables, so they get a separate wall: a program that a
        command has planted in place of another must not leave the keys where the next command finds them."""
        from msgspec.structs import replace

        sealed = replace(wall.policy, mode="read-only", writable=(), sealed=True)
        self._processes.set_walls(wall, wall.with_policy(sealed))

    def _make_wall(self, policy: SandboxPolicy, builder: WallBuilder, program: str, apart: bool = False) -> Wall:
        from pigeon.sandbox.wall import Wall

        return Wall(policy, builder, program, os.uname().machine, self._current_artifacts, apart)

    def _choose_builder(self, policy: SandboxPolicy) -> tuple[WallBuilder, str]:
        from pigeon.sandbox.wall import find_bubblewrap

        try:
            program = find_bubblewrap(self._environment.variables.get("PATH"), self._list_written_folders(policy))
        except StartupError:
            # It is unknown which programs commands could have replaced.
            program = None
        return ("landlock", "") if program is None else ("bubblewrap", program)

    def _has_many_mounts(self, policy: SandboxPolicy) -> bool:
        """Whether so many mounts are needed that `bwrap`, which examines all mounts for each, would take long."""
        from pigeon.sandbox.plan import plan_of

        with suppress(OSError):
            return len(plan_of(policy).mounts) > MANY_MOUNTS
        return False

    async def find_working_wall(self) -> None:
        """Find out with a real command which wall works here; raises `StartupError` if none does."""
        if self._wall is None or self._builder is not None:
            return
        policy, problems = self._wall.policy, list[str]()
        likely = self._choose_builder(policy)
        candidates: list[tuple[WallBuilder, str, bool]] = [(*likely, False)]
        if likely[0] == "bubblewrap":
            candidates = [*([(*likely, True)] if _has_shared_mounts() else []), *candidates]
            own: tuple[WallBuilder, str, bool] = ("landlock", "", False)
            candidates = [own, *candidates] if self._has_many_mounts(policy) else [*candidates, own]
        for builder in candidates:
            wall = self._make_wall(policy, *builder)
            self._use_wall(wall)
            problem = await _probe_wall(self._processes, plain_environment(self._environment.variables), policy.scratch)
            if problem is None:
                self._builder, self._wall = builder, wall
                return
            problems.append(f"{builder[0]}: {problem}")
        advice = (
            "The system does not let programs create namespaces: allow that (sysctl user.max_user_namespaces, the "
            "AppArmor profile or the container's options)"
            if likely[0] == "bubblewrap"
            else INSTALL
        )
        await self._processes.kill_everything()
        raise StartupError(
            f"The requested sandbox is not available here, so nothing was started.\n{advice}, or start "
            "with --sandbox off.\n" + "\n".join(f"  {line}" for line in problems)
        )

    def close(self) -> None:
        """Remove the temporary folder of the commands."""
        if self._scratch is not None:
            import shutil

            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


async def _probe_wall(owner: ProcessOwner, variables: ProgramEnvironment, scratch: str) -> str | None:
    """Run a command behind the wall of these processes that detects the wall; returns the error, or None."""
    from pigeon.system.process.run_program import find_program, run_program

    outside = os.path.join(scratch, "outside")
    try:
        shell, reads_links = (find_program(name, "/", {"PATH": os.defpath}) for name in ("sh", "readlink"))
        line = [shell, "-c", _PROBE, "sh", outside, reads_links]
        ran = await run_program(owner, line, cwd="/", environment=variables, timeout=_PROBE_SECONDS)
    except OSError as error:
        return error.strerror or str(error)
    if ran.killed:
        return f"no answer within {_PROBE_SECONDS:g} seconds"
    if ran.code == 0:
        return _find_wall_gap(ran.stdout.decode("ascii", "replace").split())
    said = ran.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1][:300] if said else f"exit code {ran.code}"


def _find_wall_gap(told: list[str]) -> str | None:
    """The first missing property of a wall according to the trial command's output; None if all are present."""
    if told[:1] == ["open"]:
        return "a command could write where it must not"
    if told[:1] != ["closed"]:
        return "the test command did not run"
    if not (told[1:2] and told[1].startswith("pid:") and told[1] != os.readlink("/proc/self/ns/pid")):
        return "a command sees the processes of others"
    return None if told[2:] == ["NoNewPrivs:1", "Seccomp:2"] else "system calls are not filtered"


def _parse_settings(given: Any, where: str) -> AskedSandbox:
    """The requests of a settings file: an object, or the mode alone; raises `StartupError` for anything else."""
    if given is None:
        return AskedSandbox()
    if isinstance(given, str):
        given = {"mode": given}
    if not isinstance(given, dict):
        raise StartupError(f"{where} must be an object with {', '.join(_KEYS)}, or one of {', '.join(_MODES)}")
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        raise StartupError(f"{where}.{unknown[0]} is unknown; the known keys are {', '.join(_KEYS)}")
    mode, network, writable, shell, variables = (given.get(key) for key in _KEYS)
    if mode is not None and mode not in _MODES:
        raise StartupError(f"{where}.mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if network is not None and not isinstance(network, bool):
        raise StartupError(f"{where}.network must be true or false")
    if not _is_list_of_texts(writable):
        raise StartupError(f"{where}.writable must be a list of folders")
    if not _is_list_of_texts(variables):
        raise StartupError(f"{where}.passVariables must be a list of names of variables")
    if shell is not None and shell not in _HOST_SHELL:
        raise StartupError(f"{where}.hostShell must be one of {', '.join(_HOST_SHELL)}")
    return AskedSandbox(mode, network, None if writable is None else tuple(writable), shell, tuple(variables or ()))


def _is_list_of_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _find_duplicate_mount_paths(hidden: Sequence[str]) -> list[str]:
    """Other paths of hidden places, which are mounted twice."""
    from pigeon.sandbox.second_mounts import MOUNTS, other_places, parse_mounts

    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            parts = parse_mounts(file.read())
    except OSError:
        return []
    return other_places(filter(os.path.lexists, hidden), parts)


def _has_shared_mounts() -> bool:
    """Whether later mounts appear in existing namespaces; True if that is unknown."""
    from pigeon.sandbox.second_mounts import MOUNTS

    try:
        with open(MOUNTS, "rb") as file:
            text = file.read()
    except OSError:
        return True
    return b" shared:" in text or b" master:" in text


def _own_code_folders(root: str) -> list[str]:
    """The folders of Pigeon's own code: a command that could write there would decide what it does next."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    # Python also searches modules beside the package, unless that is the working folder.
    beside = os.path.dirname(package)
    source = package if f"{root}/".startswith(f"{beside}/") else beside
    folders = [
        sys.prefix,
        os.path.dirname(os.__file__),
        source,
        *(path for path in sys.path if "site-packages" in path),
    ]
    return [os.path.realpath(path) for path in folders if os.path.isdir(path)]
