"""How much a run and a conversation may use, and when a run goes in circles."""
