"""Agents that an agent starts: their types, the account that they share, and the tool calls that wait for them."""
