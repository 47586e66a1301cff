"""Checkpoints: the files of a workspace before and after each prompt, and going back to them."""
