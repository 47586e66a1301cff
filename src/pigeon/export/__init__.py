"""A conversation as one page that anybody can open: self-contained, readable, and with nothing in it that can run."""
