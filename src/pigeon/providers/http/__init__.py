"""One HTTP exchange with a model server: client, network, routes, server-sent events, retries, silence."""
