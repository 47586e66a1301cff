"""The API `openai-responses`, also as Azure serves it."""
