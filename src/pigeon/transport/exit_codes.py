"""The exit codes of the program. Hosts tell by them how an agent ended."""

from __future__ import annotations

import signal

OK = 0
FAILED = 1  # a bad start, a refused prompt, or no reader of stdout any more
LIMIT = 3  # `--mode json`: a run was ended by a limit
DENIED = 4  # unattended, and none of the last tool calls of a run was allowed
BY_SIGNAL = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}
