"""One conversation with memory."""
