"""The extras of the package: what the base installation leaves out, whether it is there, and how to install it."""

from __future__ import annotations

import os
import sys

from pigeon.wire.errors import StartupError

PACKAGE = "pigeon-agent"
# The modules that each extra of `pyproject.toml` brings; one that is missing shows that the extra is not installed.
_PAGES = ("markdown_it", "nh3", "pygments")
EXTRAS: dict[str, tuple[str, ...]] = {
    "chat": ("prompt_toolkit", "rich", *_PAGES),
    "images": ("PIL",),
    "mcp": ("mcp",),
    "pages": _PAGES,
    "postgres": ("psycopg", "psycopg_binary", "psycopg_pool"),
    "ray": ("ray",),
    "report": ("matplotlib", "pyarrow"),
    "serve": ("starlette", "uvicorn", "websockets", *_PAGES),
}


def is_installed(module: str) -> bool:
    """Whether a module can be imported; it is looked for, and not imported."""
    from importlib.util import find_spec

    return find_spec(module) is not None


def find_missing_module(extra: str) -> str | None:
    """The first module of an extra that is not installed, or None."""
    return next((module for module in EXTRAS[extra] if not is_installed(module)), None)


def make_install_command(extra: str) -> str:
    """The command that adds an extra to this installation: pipx and uv have given it a separate environment.

    Each of these programs finds that Pigeon is there, and installs only what the extra needs besides.
    """
    import shlex

    wanted = shlex.quote(f"{PACKAGE}[{extra}]")
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject {PACKAGE} {wanted}"
    python = shlex.quote(sys.executable)
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"


def describe_missing_extra(subject: str, extra: str, module: str) -> str:
    """What to say if `subject` (The chat) cannot work because a module of an extra is missing."""
    return f"{subject} needs packages that are not installed ({module} is missing): {make_install_command(extra)}"


def require_extra(extra: str, subject: str) -> None:
    """Raise `StartupError` with the line to type if an extra that `subject` needs is not installed."""
    missing = find_missing_module(extra)
    if missing is not None:
        raise StartupError(describe_missing_extra(subject, extra, missing))
