"""Warm starts: a parent that has imported everything, and calls of `pigeon` that run in processes forked from it."""
