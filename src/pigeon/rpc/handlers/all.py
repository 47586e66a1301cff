"""Importing this module registers every handler."""

from __future__ import annotations

from pigeon.rpc.handlers import dialogs, later, models, modes, prompting, sessions, shell, state

__all__ = ["dialogs", "later", "models", "modes", "prompting", "sessions", "shell", "state"]
