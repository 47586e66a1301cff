"""The processes of served conversations: their parent, and what runs in each."""
