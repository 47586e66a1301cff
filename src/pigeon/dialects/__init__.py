"""What differs between speakers: pure projections of one native stream. No other room asks for the dialect."""
