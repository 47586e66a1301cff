"""The differences between the dialects of the protocol, as projections of one stream of records.

No other package checks which dialect is in use.
"""
