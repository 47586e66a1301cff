"""Policies of a run: its limits, loops, its final answer, and reminders for the model."""
