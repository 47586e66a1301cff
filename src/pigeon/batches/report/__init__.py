"""What a batch came to: tables for other programs, and a page for people."""
