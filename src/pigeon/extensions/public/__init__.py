"""What authors of extensions import; `pigeon.extensions` re-exports it."""
