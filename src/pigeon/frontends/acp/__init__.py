"""Pigeon in editors: the Agent Client Protocol on stdin and stdout, written against `pigeon.Conversation` only."""
