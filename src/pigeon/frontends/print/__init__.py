"""`pigeon -p`: one prompt, one answer, and an exit code that tells how the run ended."""
