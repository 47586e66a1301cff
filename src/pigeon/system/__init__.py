"""The operating system, behind small functions."""
