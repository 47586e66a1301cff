"""The chat in a terminal: a client of `pigeon.Conversation`, with two views of it, a screen and plain lines."""
