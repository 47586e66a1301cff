"""Processes that have imported everything and fork others, each the beginning of an agent."""
