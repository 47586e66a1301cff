"""`demo/guide`: the built-in model that needs no key."""
