"""What steers the model besides the user: the shared plan with its reminders, and stream rules."""
