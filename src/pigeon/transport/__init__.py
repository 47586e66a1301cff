"""Bytes in and out: framing, the claimed descriptors, the one ordered writer."""
