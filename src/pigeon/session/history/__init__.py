"""What is on disk: session files, the journal over them, and lists and views derived from them."""
