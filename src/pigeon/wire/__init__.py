"""The protocol as data: every record, its JSON form, and nothing else. Imports no other package and does no I/O."""
