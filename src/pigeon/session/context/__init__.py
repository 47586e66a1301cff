"""What the model sees: the conversation of the active branch, its size, and its images."""
