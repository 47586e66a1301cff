"""Agents behind a pipe or a socket, be they Pigeon or others of the family."""
