"""Lays out what models and tools have written: markdown, tables, tool calls."""
