"""Commands of the chat that begin with a slash."""
