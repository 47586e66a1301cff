"""The command line: options, help, the dispatch of a call, and small commands in `cli/commands/`."""
