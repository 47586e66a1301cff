"""What the host does for a session: it answers dialogs, runs tools of its own and shell commands."""
