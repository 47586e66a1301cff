"""What may happen: trust, paths, secrets, the environment of children."""
