"""The process that holds the connections to tool servers; nothing else imports what is here."""
