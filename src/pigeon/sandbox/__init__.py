"""The wall around commands: what it lets through, and how this system builds it."""
