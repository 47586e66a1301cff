"""How `grep` and `find` search: ripgrep, its output, and what it does not list."""
