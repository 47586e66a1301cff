"""How extensions are found, loaded and run: a thread each, bounded queues, time-outs."""
