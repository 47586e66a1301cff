"""Places that decide what the agent, the shell or git will do later: its own folders, start-up files, hooks.

A model that may write there could install an extension for itself or edit the rules. So while permission rules are in
force, a call that writes there needs a rule whose pattern names the place; a rule that merely matches it does not
count. `permissions/gate` checks the real place of a file and the names by which it was called.

Names are compared in one common form: case, composition and invisible characters are ignored, because some file systems
ignore them.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from pigeon.permissions.rules import PermissionLayers, PlacedPath, Ruling, matches_place
from pigeon.system.file_view import LOCAL_FILES, FileView
from pigeon.system.paths import PathResolver, absolute_path, expand_home, fold_spelling

# Folders of agents, wherever they are, and what git keeps about a repository: a folder, or a file that names one.
_ANYWHERE = frozenset((".pigeon", ".pi", ".omp", ".agents", ".mcp.json", ".git"))
# What makes a folder called `name.git` dangerous: a repository without a working tree.
_IN_BARE = frozenset(("hooks", "config", "config.worktree", "modules", "worktrees"))
_IN_HOME = """
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .inputrc
    .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .environment .pam_environment
    .config/fish .config/nushell .config/powershell .config/zsh .config/bash
    .xinitrc .xprofile .xsession .xsessionrc .config/autostart .config/systemd .config/environment.d
    Library/LaunchAgents .ssh .gnupg .gitconfig .config/git .netrc .npmrc .yarnrc .yarnrc.yml .pypirc .curlrc .wgetrc
    .pythonrc.py .config/pip .docker/config.json .aws .kube/config
"""
_OF_SYSTEM = """
    /etc/profile /etc/profile.d /etc/bash.bashrc /etc/bashrc /etc/zsh /etc/zshrc /etc/zshenv /etc/zprofile /etc/fish
    /etc/environment /etc/gitconfig /etc/inputrc /etc/ld.so.preload /etc/ssh /etc/sudoers /etc/sudoers.d /etc/crontab
    /etc/cron.d /etc/systemd /etc/pam.d
"""
# Variables that contain the path of such a file or folder. For a folder in `_FOLDERS`, only these files in it are
# meant.
_NAMING = ("BASH_ENV", "ENV", "INPUTRC", "GIT_CONFIG_GLOBAL", "NPM_CONFIG_USERCONFIG", "PYTHONSTARTUP", "GNUPGHOME")
_FOLDERS = {
    "XDG_CONFIG_HOME": ("fish", "git", "nushell", "powershell", "autostart", "systemd", "environment.d", "pip"),
    "ZDOTDIR": (".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
}
_LONGEST_FILE = 64 * 1024
_LONGEST_PATH = 4096
_MOST_HOOKS = 10
_MOST_LINKED = 500


class ProtectedPart(Struct, frozen=True):
    """A protected part: its description, and the consecutive names that a pattern must contain to name it."""

    name: str
    words: tuple[str, ...]

    def is_named_by(self, pattern: str) -> bool:
        """Whether a pattern names this part instead of merely matching it."""
        written = _folded_names(pattern)
        count = len(self.words)
        return any(written[at : at + count] == self.words for at in range(len(written) - count + 1))


# A file or folder that is protected with everything in it, and its description.
Root = tuple[str, ProtectedPart]


class ProtectedPlaces:
    """The protected places of one agent and one user.

    `own` are files and folders of the agent: its folder, and the extensions and rule files named in its options. The
    first of `homes` is the one that `~` means. `variables` may change while the agent runs.
    """

    def __init__(self, own: Sequence[str], homes: Sequence[str], variables: Mapping[str, str]) -> None:
        self._own = tuple(own)
        self._homes = tuple(homes)
        self._variables = variables

    def find_protected(
        self, files: Iterable[PlacedPath], cwd: str, view: FileView = LOCAL_FILES
    ) -> list[tuple[PlacedPath, Sequence[ProtectedPart]]]:
        """The protected ones among these files, each with the reasons; reads the disk, so not in the event loop."""
        known = [*self._list_protected_roots(view), *_repository_roots(cwd, self._homes[0], view)]
        protected = ((file, self._find_protecting_parts((*file.names, file.place), known, view)) for file in files)
        return [(file, parts) for file, parts in protected if parts]

    def _find_protecting_parts(
        self, places: Iterable[str], known: Sequence[Root], view: FileView
    ) -> tuple[ProtectedPart, ...]:
        found: dict[ProtectedPart, None] = {}
        for place in dict.fromkeys(places):
            found.update(dict.fromkeys(_find_parts_by_name(place)))
            inside, linked = _folded_names(place), view.identity_of(place)
            for path, part in (*known, *_repository_roots(place, self._homes[0], view)):
                root = _folded_names(path)
                if inside[: len(root)] == root or (linked and linked in _list_multilink_identities(path, view)):
                    found[part] = None
        return tuple(found)

    def _list_protected_roots(self, view: FileView) -> Iterator[Root]:
        home = self._homes[0]
        for path in self._own:
            below = path[len(home) + 1 :] if path.startswith(home.rstrip("/") + "/") else None
            shown = path if below is None else f"~/{below}"
            yield from _roots_of(path, ProtectedPart(shown, _folded_names(below or path)), view)
        for home in dict.fromkeys(self._homes):
            for name in _IN_HOME.split():
                yield from _roots_of(os.path.join(home, name), ProtectedPart(f"~/{name}", _folded_names(name)), view)
        for path in _OF_SYSTEM.split():
            yield from _roots_of(path, ProtectedPart(path, _folded_names(path)), view)
        yield from self._list_roots_from_variables(view)

    def _list_roots_from_variables(self, view: FileView) -> Iterator[Root]:
        home = self._homes[0]
        for variable in _NAMING:
            if given := self._variables.get(variable):
                path = absolute_path(given, home, home)
                yield from _roots_of(path, ProtectedPart(path, _folded_names(os.path.basename(path))), view)
        for variable, names in _FOLDERS.items():
            if given := self._variables.get(variable):
                for name in names:
                    path = os.path.join(absolute_path(given, home, home), name)
                    yield from _roots_of(path, ProtectedPart(path, _folded_names(name)), view)


def ruling_of_named_parts(
    layers: PermissionLayers, tool: str, place: PlacedPath, parts: Sequence[ProtectedPart], paths: PathResolver
) -> Ruling:
    """The ruling of the rules that name all of these parts: ask or allow, and deny if there is none.

    Only the user's rules may name them, and other rules only if the user has none.
    """
    deciding = next((rules for rules in (layers.user, layers.host) if rules.is_in_force), layers.project)
    for verdict, rules in deciding.by_verdict.items():
        for rule in rules if verdict != "deny" else ():
            named = rule.pattern is not None and all(part.is_named_by(rule.pattern) for part in parts)
            if named and matches_place(rule, (tool,), place, paths, verdict == "allow"):
                return Ruling(verdict, rule.text, (rule.text,) if verdict == "ask" else ())
    return Ruling("deny")


def _find_parts_by_name(place: str) -> Iterator[ProtectedPart]:
    words = _folded_names(place)
    for index, word in enumerate(words):
        bare = word.endswith(".git") and not _IN_BARE.isdisjoint(words[index + 1 : index + 2])
        if word in _ANYWHERE or bare:
            yield ProtectedPart(word, (word,))


def _repository_roots(place: str, home: str, view: FileView) -> Iterator[Root]:
    """The files that git keeps about the repository of a place, even outside `.git`, and the hooks that it runs."""
    folder = place
    while not view.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above
    data = [os.path.join(folder, ".git")]
    if view.is_file(data[0]) and (elsewhere := _read_start(data[0], view).removeprefix("gitdir:").strip()):
        data.append(os.path.join(folder, elsewhere))
    if shared := _read_start(os.path.join(data[-1], "commondir"), view).strip():
        data.append(os.path.join(data[-1], shared))
    for path in dict.fromkeys(os.path.normpath(path) for path in data):
        part = ProtectedPart(path, _folded_names(os.path.basename(path)))
        for name in ("", "hooks", "config"):
            yield from _roots_of(os.path.join(path, name).rstrip("/"), part, view)
    settings = (line.partition("=") for line in _read_start(os.path.join(data[-1], "config"), view).splitlines())
    named = [value.strip().strip('"') for key, _, value in settings if key.strip().lower().endswith("hookspath")]
    for hooks in named[-_MOST_HOOKS:]:
        if hooks:
            yield from _roots_of(
                absolute_path(hooks, folder, home), ProtectedPart(hooks, _folded_names(expand_home(hooks, home))), view
            )


def _read_start(path: str, view: FileView) -> str:
    """The beginning of a file; empty if there is none."""
    try:
        return view.read_beginning(path, _LONGEST_FILE)[0]
    except (OSError, ValueError):
        return ""


def _roots_of(path: str, part: ProtectedPart, view: FileView) -> Iterator[Root]:
    """A file or folder under its names, as written and with links resolved; empty for a name that no system would
    open."""
    if len(path) > _LONGEST_PATH:
        return
    yield path, part
    # A path in a repository may contain NUL.
    with suppress(ValueError):
        real = view.real_path(path)
        if real != path:
            yield real, part


def _list_multilink_identities(path: str, view: FileView) -> Iterator[str]:
    """The identities of a protected file, or of the files in a protected folder, that have several names."""
    yield view.identity_of(path)
    with suppress(OSError, ValueError):
        for entry in view.list_folder(path)[:_MOST_LINKED]:
            yield view.identity_of(os.path.join(path, entry.name))


def _folded_names(path: str) -> tuple[str, ...]:
    """The names in a path or pattern, each in the common form of its spellings."""
    plain = "".join(char for char in fold_spelling(path) if unicodedata.category(char) != "Cf")
    return tuple(word for word in plain.casefold().split("/") if word not in ("", "."))
