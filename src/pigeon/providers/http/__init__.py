"""One HTTP exchange with a model server: client, network, body, and the exchange with its retries and its watchdog."""
