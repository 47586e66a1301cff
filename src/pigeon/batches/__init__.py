"""Many tasks, each by an agent of its own in a workspace of its own, on an engine that runs them side by side."""
