"""From records to calls and back: router, lanes, outbox, shutdown, and one handler file per area."""
