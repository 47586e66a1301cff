"""What models and tools have written, laid out in lines: markdown, tables, tool calls."""
