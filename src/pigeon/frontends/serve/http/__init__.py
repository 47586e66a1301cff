"""The way in by HTTP: the page, sessions as JSON, the protocol over WebSocket."""
