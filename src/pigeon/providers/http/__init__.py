"""One HTTP exchange with a model server: the client, the network below it, and the exchange with retries and events."""
