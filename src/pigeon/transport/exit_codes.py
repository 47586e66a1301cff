"""The exit codes of the program, by which hosts learn how an agent ended."""

from __future__ import annotations

import signal

OK = 0
FAILED = 1  # a bad start, a refused prompt, a run that ended in an error, or a closed stdout
USAGE = 2  # the command line is wrong
LIMIT = 3  # `-p` and `--mode json`: a run was ended by a limit
DENIED = 4  # no person could be asked, and none of the last tool calls of a run was allowed
BY_SIGNAL = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
# The exit codes for the ends of runs.
BY_END = {"done": OK, "error": FAILED, "limit": LIMIT, "denied": DENIED, "aborted": BY_SIGNAL[signal.SIGINT]}
