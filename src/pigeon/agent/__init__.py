"""The loop: run, turn, tool calls. Knows the wire and nothing else; models, tools and gates are handed to it."""
