"""What differs between speakers: pure projections of one native stream. Nothing outside this room asks for the dialect."""
