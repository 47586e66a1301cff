"""Many tasks, each done by its own agent in its own workspace, run in parallel by an engine."""
