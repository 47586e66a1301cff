"""Policies of a run: what it may use, when it goes in circles, what it must end with, what the model is reminded of."""
