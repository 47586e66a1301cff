"""Models: adapters for wire APIs, the registry of models and keys, and the two built-in models."""
