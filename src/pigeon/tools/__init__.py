"""Tools the model can call. Each file is one tool; what they share is in base, truncate and diff."""
