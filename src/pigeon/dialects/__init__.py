"""What differs between the dialects of the protocol, as projections of one stream of records.

No other package asks which dialect is spoken.
"""
