"""The helper: the program that Pigeon runs on other machines. `bundle` joins its modules into one text."""
