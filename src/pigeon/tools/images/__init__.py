"""Images that models accept: recognized by their first bytes, resized, converted."""
