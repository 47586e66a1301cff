"""Importing this module registers every handler."""

from __future__ import annotations

from pigeon.rpc.handlers import later, models, modes, prompting, sessions, shell, state

__all__ = ["later", "models", "modes", "prompting", "sessions", "shell", "state"]
