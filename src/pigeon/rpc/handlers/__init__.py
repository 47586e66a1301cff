"""Handlers of commands, by area."""
