"""The API `openai-completions`, and how servers that imitate it differ."""
