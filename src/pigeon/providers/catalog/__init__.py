"""The built-in models: facts of public providers, one data file each, read only when that provider is wanted."""
