"""The command line: arguments, one module per mode, and what they print; what an agent is stands in `app`."""
