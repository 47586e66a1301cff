"""Where files are and what the user set."""
