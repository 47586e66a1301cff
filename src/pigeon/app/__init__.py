"""Puts an agent together from options: the one composition root, used by every way in."""
