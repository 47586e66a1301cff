"""Pigeon: a coding agent that other programs talk to."""

__version__ = "0.1.0"
