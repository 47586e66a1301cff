"""What may happen: permission rules and the gate that asks them, trust in projects, the environment of commands."""
