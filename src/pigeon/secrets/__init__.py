"""Keys: which values are secret, what commands see of the environment, masking of everything that is written."""
