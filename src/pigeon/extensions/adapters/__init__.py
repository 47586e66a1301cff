"""The session's interfaces, answered by extensions: hooks, tool gate, events, tools and providers."""
