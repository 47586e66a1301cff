"""What programs see of our environment: the one place where the variables of a program are chosen.

Every program that Pigeon starts may read files that an agent has written, and run what they name. So it gets one of
these, and `system/process/start` takes nothing else:

    tool_environment      commands, extensions' programs, tool servers: all but the keys of model providers
    persons_environment   what a person has chosen: their editor, their commands for keys, git with its servers; all but
                          the keys of model providers
    plain_environment     what Pigeon has chosen: a few variables by name
    own_environment       Pigeon's own processes, which get what else they need in another way
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from pigeon.system.paths import keep_absolute_entries

# Keys of providers that the catalogue does not know, or under names of others; those of the catalogue are given by it.
SECRET_NAMES = frozenset(
    {
        *("AWS_BEARER_TOKEN_BEDROCK", "CLAUDE_CODE_OAUTH_TOKEN", "CLOUDFLARE_API_KEY", "COHERE_API_KEY"),
        *("COPILOT_GITHUB_TOKEN", "GOOGLE_API_KEY", "GOOGLE_CLOUD_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
        *("PERPLEXITY_API_KEY", "RADIUS_API_KEY"),
    }
)
_SECRET_FAMILIES = r"(QWEN_TOKEN_PLAN|XIAOMI)_?\w*API_KEY|(PI|PIGEON)_\w*API_KEY"
# fmt: off
# Variables that a command for keys may refer to, and that no command can do without.
NEEDED = frozenset(
    {
        "HOME", "PATH", "USER", "LOGNAME", "SHELL", "PWD", "LANG", "LC_ALL", "TERM", "TMPDIR", "HOSTNAME", "DISPLAY",
        "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GPG_TTY",
    }
)
# fmt: on
# Where the desktop is, for programs of the clipboard.
DESKTOP = ("WAYLAND_DISPLAY", "XAUTHORITY", "XDG_SESSION_TYPE", "XDG_CURRENT_DESKTOP", "__CF_USER_TEXT_ENCODING")
# Our own interpreter may not start without its library path.
_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
_OF_OWN = ("PATH", "HOME", "LANG", "TMPDIR", *_LIBRARIES)
_OF_ANOTHER_SESSION = ("PI_SESSION_ID", "PI_SESSION_FILE", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL")
MARKERS = {"PI_CODING_AGENT": "true", "AI_AGENT": "pigeon"}


class ProgramEnvironment(dict[str, str]):
    """The variables of a program. Only the functions of this module make one out of others."""

    def with_added(self, added: Mapping[str, str]) -> ProgramEnvironment:
        """These and others, which were chosen for this program."""
        return ProgramEnvironment({**self, **added})

    def only(self, names: Collection[str]) -> ProgramEnvironment:
        """Of these, the ones with these names, and those of the language."""
        return ProgramEnvironment(
            {name: value for name, value in self.items() if name in names or name.startswith("LC_")}
        )


def plain_environment(environ: Mapping[str, str], *also: str) -> ProgramEnvironment:
    """What no program can do without, and the variables `also`; relative entries of PATH are left out."""
    seen = ProgramEnvironment(environ).only({*NEEDED, *also})
    return seen.with_added({"PATH": keep_absolute_entries(seen.get("PATH"))})


def own_environment(environ: Mapping[str, str], *also: str) -> ProgramEnvironment:
    """What a process of Pigeon's own needs to start, and the variables `also`."""
    return ProgramEnvironment(environ).only({*_OF_OWN, *also})


def persons_environment(
    environ: Mapping[str, str], key_names: Collection[str], named: Collection[str] = ()
) -> ProgramEnvironment:
    """All variables but the keys of model providers, which `key_names` lists; a variable that the person has `named`
    for this program stays."""
    return ProgramEnvironment(
        {name: value for name, value in environ.items() if name in named or not is_secret_name(name, key_names)}
    )


def is_secret_name(name: str, also: Collection[str] = ()) -> bool:
    """True for a variable that holds the key of a model provider; those in `also` do, in any case of their letters."""
    return name not in NEEDED if name in also or name.upper() in also else _is_known_secret_name(name)


@lru_cache(maxsize=1024)
def _is_known_secret_name(name: str) -> bool:
    return name.upper() in SECRET_NAMES or re.fullmatch(_SECRET_FAMILIES, name.upper()) is not None


def is_proxy(name: str) -> bool:
    """True for a variable with the address of a proxy, which commands need whatever its value is."""
    return name.upper().endswith("_PROXY")


def tool_environment(
    environ: Mapping[str, str],
    *,
    keep_provider_keys: bool = False,
    also_secret: Collection[str] = (),
    shows_key: Callable[[str], bool] = lambda value: False,
    conceals: Callable[[str, str], bool] = lambda name, value: False,
    session: Mapping[str, str] | None = None,
    bin_folder: str | None = None,
) -> ProgramEnvironment:
    """The environment of a command.

    Provider keys are left out unless asked for: known names, names in `also_secret` (those of the catalogue, and those
    that the user's files refer to) and any variable whose value shows a key in some form; a proxy is needed, whatever
    stands in its address. So is what `conceals` says by name and value. `session` adds what commands may know of the
    session.
    """
    seen = {
        name: value
        for name, value in environ.items()
        if not conceals(name, value)
        if keep_provider_keys or not (is_secret_name(name, also_secret) or (shows_key(value) and not is_proxy(name)))
    }
    for name in _OF_ANOTHER_SESSION:
        seen.pop(name, None)
    seen.update(MARKERS)
    if bin_folder is not None:
        seen["PATH"] = f"{bin_folder}{os.pathsep}{seen['PATH']}" if seen.get("PATH") else bin_folder
    if session is not None:
        seen.update(session)
    return ProgramEnvironment(seen)
