"""The commands of the command line, a module each; `all.py` declares them."""
