"""The API `anthropic-messages`."""
