"""The session's interfaces, answered by extensions: hooks, tool gate, veto, events, tools and providers."""
