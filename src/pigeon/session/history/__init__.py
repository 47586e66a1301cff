"""What is on disk: session files, the journal over them, and the lists and views made from them."""
