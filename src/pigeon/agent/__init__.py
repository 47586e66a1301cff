"""The loop: run, turn, tool calls. It only imports the wire; models, tools and gates are passed to it."""
