"""A conversation as one HTML page: self-contained, readable, and with nothing in it that can run."""
