"""Makes room in the context: where to cut, what to leave out, and the summary of the rest."""
