"""How `edit` finds the old text, replaces it, and shows what changed."""
