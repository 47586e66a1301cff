"""Pigeon as a library: what a Python program imports, re-exported by `pigeon`."""
