"""A conversation for others: one self-contained HTML page, parts of it for live views, or a trajectory for trainers of
models."""
