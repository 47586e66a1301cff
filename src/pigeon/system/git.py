"""The one way to run git, in folders that an agent may have written.

A repository can name programs for git to run: hooks, `core.fsmonitor`, `filter.*.clean`, `diff.external`, `textconv`,
`include.path` to more of them, and those of each repository nested in it. No list of options turns off all of them,
because attributes pick them by names of their own. So what is done decides what git may read:

* Files that an agent has written are compared in an `OwnRepository`: a git directory of Pigeon's own, for which the
  folder is only a work tree. Git does not look at the `.git` of the folder, nor into nested repositories.
* A repository on this machine is only asked for its commits (`Git.read_repository`), and given branches, worktrees and
  index entries (`Git.change_repository`): that runs no program of its configuration, and nothing is fetched for it.
* Servers, and clones of Pigeon's own, are used with the configuration of the user (`Git.run`).

In none of them does git see keys of model providers, run hooks, ask for passwords or leave processes behind.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile

from pigeon.system.process.run_program import ProgramResult, find_program, run_program
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import ProgramEnvironment, persons_environment, plain_environment
from pigeon.wire.errors import PigeonError

GIT_SECONDS = 1800.0
# A folder can be made so that reading it never ends.
OWN_SECONDS = 300.0
LARGEST_OUTPUT = 64 * 1024 * 1024
LONGEST_REASON = 500
# Variables that git sets for hooks, which point to another repository; and programs that would ask for passwords, or
# show differences.
NOT_FOR_GIT = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "SSH_ASKPASS"),
    *("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_TEMPLATE_DIR", "GIT_TRACE", "GIT_ATTR_SOURCE"),
)
_ALWAYS = {"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
# What git fetches on its own where objects are missing, from where the repository says.
_FETCHING_NOTHING = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
_OWN_CONFIGURATION = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
# Events for which git runs hooks when it does what is done here; since 2.54, hooks can be in the configuration, too.
_HOOK_EVENTS = ("post-checkout", "post-index-change", "post-merge", "pre-auto-gc", "reference-transaction")
_OPTIONS = (
    "--no-pager",
    *("-c", f"core.hooksPath={os.devnull}"),
    *(word for event in _HOOK_EVENTS for word in ("-c", f"hook.{event}.enabled=false")),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "submodule.recurse=false"),
)
# Of the user's own configuration: how the bytes of a file become those of a commit, and which files are ignored.
_CONVERSIONS = r"^(core\.(autocrlf|eol|safecrlf|excludesfile|attributesfile)|filter\..*\.(clean|process|required))$"


class GitError(PigeonError):
    """Git has failed; the text says why."""


class GitTookTooLong(GitError):
    """Git was stopped because it took too long or printed too much."""


def is_git_installed(variables: Mapping[str, str]) -> bool:
    """Whether there is a git that `Git` would run; for a thread."""
    try:
        find_program("git", "/", plain_environment(variables))
    except OSError:
        return False
    return True


class Git:
    """Runs git as processes of `owner`. `variables` are those of the user, whose PATH finds git; of them `key_names`
    hold keys of model providers."""

    def __init__(self, owner: ProcessOwner, variables: Mapping[str, str], key_names: Collection[str] = ()) -> None:
        self._owner = owner
        self._users = persons_environment(
            {name: value for name, value in variables.items() if name not in NOT_FOR_GIT}, key_names
        ).with_added(_ALWAYS)
        self._plain = plain_environment(variables).with_added(_ALWAYS)

    async def run(self, *arguments: str, cwd: str = "/", seconds: float = GIT_SECONDS) -> str:
        """The output of git with the user's configuration: for servers, and for clones of Pigeon's own.

        Raises `GitError` with git's error message, and `GitTookTooLong` after `seconds`.
        """
        return _to_text(await self._run(arguments, cwd, self._users, seconds))

    async def read_repository(self, folder: str, *arguments: str) -> str:
        """The output of a command that looks up commits or objects in a repository on this machine."""
        return _to_text(await self._run(arguments, folder, self._plain.with_added(_FETCHING_NOTHING)))

    async def change_repository(self, folder: str, *arguments: str) -> str:
        """The output of a command that changes refs, worktrees or an index of a repository on this machine."""
        environment = await self._turn_hooks_off(folder, arguments, self._plain.with_added(_FETCHING_NOTHING))
        return _to_text(await self._run(arguments, folder, environment))

    async def _turn_hooks_off(
        self, folder: str, arguments: Sequence[str], environment: ProgramEnvironment
    ) -> ProgramEnvironment:
        """The environment, with the hooks turned off that the configuration names; git 2.54 knows no other way."""
        options = tuple(takewhile(lambda word: word.startswith("-"), arguments))
        listing = (*options, "config", "--null", "--name-only", "--get-regexp", r"^hook\.")
        try:
            listed = await self._run(listing, folder, environment)
        except GitError:
            return environment  # there are none
        keys = {key.rpartition(b".")[0] for key in listed.split(b"\0") if key.count(b".") > 1}
        added = {"GIT_CONFIG_COUNT": str(len(keys))}
        for number, key in enumerate(sorted(keys)):
            added[f"GIT_CONFIG_KEY_{number}"] = f"{key.decode('utf-8', 'surrogateescape')}.enabled"
            added[f"GIT_CONFIG_VALUE_{number}"] = "false"
        return environment.with_added(added)

    async def copy_from_repository(self, *arguments: str) -> str:
        """The output of a command that copies from a repository on this machine: a clone, or refs."""
        environment = self._plain.with_added({**_FETCHING_NOTHING, "GIT_ALLOW_PROTOCOL": "file"})
        return _to_text(await self._run(arguments, "/", await self._turn_hooks_off("/", arguments, environment)))

    async def create_own(self, folder: str, work_tree: str, commit: str, objects: str) -> OwnRepository:
        """A git directory of Pigeon's own in the empty `folder`, whose index is that of `commit`.

        `objects` is the folder of objects that has the commit; nothing is written there.
        """
        quoted = objects.replace("\\", "\\\\").replace('"', '\\"')
        borrowed = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}
        own = await self._create_own(folder, work_tree, "sha256" if len(commit) == 64 else "sha1", borrowed)
        await own.run("read-tree", commit)
        return own

    async def create_empty_own(self, folder: str, work_tree: str) -> OwnRepository:
        """The same for a work tree without a repository: the index is empty."""
        return await self._create_own(folder, work_tree, "sha1", {})

    async def _create_own(self, folder: str, work_tree: str, kind: str, also: Mapping[str, str]) -> OwnRepository:
        settings = self.own_settings()
        created = ("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", folder)
        await self._run(created, "/", settings)
        settings = settings.with_added(also)
        try:
            users = await self._run(
                (f"--git-dir={folder}", "config", "--null", "--get-regexp", _CONVERSIONS), "/", self._plain
            )
        except GitError:
            users = b""  # none of them is set
        chosen = [setting for setting in map(_to_option, users.split(b"\0")) if setting is not None]
        return OwnRepository(self, folder, work_tree, [word for one in chosen for word in ("-c", one)], settings)

    def own_settings(self) -> ProgramEnvironment:
        """The variables for a repository of Pigeon's own that knows no commit of another one."""
        return self._plain.with_added({**_FETCHING_NOTHING, **_OWN_CONFIGURATION})

    async def run_in_own(
        self, arguments: Sequence[str], work_tree: str, environment: ProgramEnvironment, stdin: bytes | None
    ) -> bytes:
        """The output of git for an `OwnRepository`, with nothing in `environment` but what that has chosen."""
        return await self._run(arguments, work_tree, environment, OWN_SECONDS, stdin)

    async def try_in_own(
        self, arguments: Sequence[str], work_tree: str, environment: ProgramEnvironment, stdin: bytes | None = None
    ) -> tuple[bytes, bool]:
        """The output of git for an `OwnRepository`, and whether it ended with 0 and not with 1."""
        result = await self._start(arguments, work_tree, environment, OWN_SECONDS, stdin)
        if result.code not in (0, 1):
            raise GitError(f"git: {_extract_error(result.stderr)}")
        return result.stdout, not result.code

    async def _run(
        self,
        arguments: Sequence[str],
        cwd: str,
        environment: ProgramEnvironment,
        seconds: float = GIT_SECONDS,
        stdin: bytes | None = None,
    ) -> bytes:
        result = await self._start(arguments, cwd, environment, seconds, stdin)
        if result.code:
            raise GitError(f"git: {_extract_error(result.stderr)}")
        return result.stdout

    async def _start(
        self,
        arguments: Sequence[str],
        cwd: str,
        environment: ProgramEnvironment,
        seconds: float,
        stdin: bytes | None,
    ) -> ProgramResult:
        argv = ["git", *_OPTIONS, *arguments]
        try:
            result = await run_program(
                self._owner,
                argv,
                cwd=cwd,
                environment=environment,
                timeout=seconds,
                stdin=stdin,
                limit=LARGEST_OUTPUT,
            )
        except OSError as error:
            raise GitError(f"git cannot be run: {error.strerror or error}") from None
        if result.killed:
            name = next(word for word in arguments if not word.startswith("-"))
            raise GitTookTooLong(f"git {name} took longer than {seconds:g} s, or printed too much")
        return result


class OwnRepository:
    """A git directory of Pigeon's own, and a folder of others as its work tree.

    The folder's own repository is not looked at. `.gitattributes` and `.gitignore` in it count, but name no programs
    except filters that the user's own configuration has.
    """

    def __init__(
        self, git: Git, folder: str, work_tree: str, settings: Sequence[str], environment: ProgramEnvironment
    ) -> None:
        self._git = git
        self.folder = folder
        self._work_tree = work_tree
        self._settings = settings
        self._environment = environment.with_added({"GIT_DIR": folder, "GIT_WORK_TREE": work_tree})

    async def run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """The output of git; raises `GitError`."""
        return await self._git.run_in_own((*self._settings, *arguments), self._work_tree, self._environment, stdin)

    async def try_run(self, *arguments: str, stdin: bytes | None = None) -> tuple[bytes, bool]:
        """The output of a command that ends with 0 or 1, and whether it was 0; raises `GitError` for any other code."""
        return await self._git.try_in_own((*self._settings, *arguments), self._work_tree, self._environment, stdin)

    async def write_foreign_index(self, index: str, entries: bytes) -> None:
        """Replace entries in the index of the folder's own repository: `MODE OBJECT<tab>PATH`, each with a NUL.

        Git looks at files there, too, so that is done with the settings of this repository.
        """
        environment = self._environment.with_added({"GIT_INDEX_FILE": index})
        arguments = (*self._settings, "update-index", "-z", "--index-info")
        await self._git.run_in_own(arguments, self._work_tree, environment, entries)

    async def stage_changes(self) -> None:
        """Bring the index up to date with the work tree, except for ignored files.

        `git add` would start git in each nested repository, with what the configuration there names.
        """
        listed = await self.run("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
        paths = dict.fromkeys(listed.split(b"\0")[:-1])
        nested = [path for path in paths if path.endswith(b"/")]
        changed = b"".join(path + b"\0" for path in paths if not path.endswith(b"/"))
        if changed:
            await self.run("update-index", "-z", "--add", "--remove", "--stdin", stdin=changed)
        for path in nested:
            try:
                await self.run("update-index", "-z", "--add", "--stdin", stdin=path.rstrip(b"/") + b"\0")
            except GitError:
                # A repository without a commit has no place in another one.
                continue

    async def write_tree(self) -> str:
        """The tree that the index describes."""
        return (await self.run("write-tree")).decode().strip()

    async def diff_index(self, commit: str) -> bytes:
        """What the index has changed since a commit or a tree, as a patch."""
        # With a choice for submodules, git does not read the one in `.gitmodules`, which may be invalid.
        options = ("--cached", "--binary", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
        return await self.run("diff", *options, commit)


def _to_option(setting: bytes) -> str | None:
    """`name=value` for the option -c; None for what that cannot express."""
    name, newline, value = setting.decode("utf-8", "surrogateescape").partition("\n")
    if not newline or "=" in name:
        return None
    return f"{name}={value}"


def _to_text(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape").strip("\n")


def _extract_error(stderr: bytes) -> str:
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line.partition(": ")[2] for line in lines if line.startswith(("fatal: ", "error: "))]
    # The message of the server or transport comes first; git's own message after it adds little.
    told = [line for line in lines if line.startswith(("ssh: ", "remote: ", "ERROR: ")) or "denied" in line]
    return " ".join([*told, *fatal] or lines[-3:])[:LONGEST_REASON] or "it failed without a message"
