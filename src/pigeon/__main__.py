"""`python -m pigeon` is the program `pigeon`."""

import os
import sys
from contextlib import suppress

# `-m` puts the working directory in front of every library: a project could bring a module `asyncio` of its own.
with suppress(OSError):
    sys.path[:] = [folder for folder in sys.path if folder not in ("", os.getcwd())]

from pigeon.cli.main import main

main()
