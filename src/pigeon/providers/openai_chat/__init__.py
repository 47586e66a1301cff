"""The API `openai-completions`, and how compatible servers differ."""
