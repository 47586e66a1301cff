"""The environment of commands: which variables hold keys and are left out, and which facts of the session are added."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

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
_OF_ANOTHER_SESSION = ("PI_SESSION_ID", "PI_SESSION_FILE", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL")
MARKERS = {"PI_CODING_AGENT": "true", "AI_AGENT": "pigeon"}


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
) -> dict[str, str]:
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
    return seen
