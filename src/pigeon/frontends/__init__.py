"""The ways to use an agent: each front end has its own arguments and its own run code."""
