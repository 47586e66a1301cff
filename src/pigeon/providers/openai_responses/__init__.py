"""The API `openai-responses`, also as served by Azure."""
