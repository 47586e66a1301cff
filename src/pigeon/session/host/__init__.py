"""What the host does for a session: it answers dialogs, and runs tools and shell commands."""
