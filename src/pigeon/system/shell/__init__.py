"""One shell command: its output, cut to size, and kept whole on disk when it is long."""
