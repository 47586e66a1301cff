"""`pigeon -p`: one prompt, one answer, and an exit code that says how the run ended."""
