"""Images that models accept: recognised by their first bytes, resized, converted."""
