"""The command line: the only place that puts the pieces together."""
