"""The protocol as data: every record, its JSON form, and nothing else. Imports no other room and does no I/O."""
