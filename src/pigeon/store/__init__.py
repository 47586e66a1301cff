"""Session stores: what one must do, PostgreSQL as one, and how an address names one."""
