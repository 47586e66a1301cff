"""Many conversations at once: a supervisor, a process for each conversation, and the ways in from the network."""
