"""Tools that the model can call: a module for each, and folders for how files are edited, searched and shown."""
