"""The report of a batch: tables for other programs, and a page for people."""
