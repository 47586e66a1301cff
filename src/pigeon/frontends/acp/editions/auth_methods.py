"""The ways to give Pigeon a key, as announced to editors: through the environment, or in a terminal."""

from __future__ import annotations

from msgspec import Struct

KEY_METHOD = "api-key"
SETUP_METHOD = "terminal-setup"
SETUP_ARGUMENTS = ("--setup",)
NO_KEY = (
    "No model can be used: Pigeon has no key. Set a variable such as ANTHROPIC_API_KEY or OPENAI_API_KEY "
    "in the environment of the editor's agent settings, or put a key into auth.json; `pigeon doctor` says what is "
    "missing"
)


class AuthMethod(Struct, frozen=True):
    """One way to set up a key; if it has `args`, the editor opens a terminal and adds these arguments to the agent's
    command."""

    id: str
    name: str
    description: str
    args: tuple[str, ...] = ()


def auth_methods(in_terminal: bool) -> list[AuthMethod]:
    """The ways that this client supports."""
    methods = [
        AuthMethod(
            KEY_METHOD,
            "API key of a model provider",
            "Set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or the variable of another provider in the "
            "environment that the editor starts Pigeon with, or put a key into auth.json of Pigeon's folder",
        )
    ]
    if in_terminal:
        methods.append(
            AuthMethod(SETUP_METHOD, "Set up in a terminal", "Asks for a provider and its key", SETUP_ARGUMENTS)
        )
    return methods
