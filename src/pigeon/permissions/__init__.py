"""Permission rules, and the gate that applies them to tool calls before they run."""
