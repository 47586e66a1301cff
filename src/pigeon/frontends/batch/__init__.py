"""Many tasks, each done by its own agent in its own workspace; an engine runs them in parallel."""
