"""How `grep` and `find` search: ripgrep, its output, and the paths that it does not list."""
