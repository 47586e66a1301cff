"""Workspaces on other machines: a helper program that is sent there, and the ways to reach it."""
