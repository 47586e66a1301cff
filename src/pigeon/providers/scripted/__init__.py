"""`scripted/FILE`: a model that answers from a script, for the tests of hosts."""
