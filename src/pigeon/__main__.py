"""`python -m pigeon` is the program `pigeon`."""

import os
import sys

# `-m` puts the working directory in front of every library: a project could bring a module `asyncio` of its own. Python
# has imported a few modules by then, from there if it has them; only its option -I keeps it from that, with which the
# command `pigeon` starts it.
try:
    sys.path[:] = [folder for folder in sys.path if folder not in ("", os.getcwd())]
except OSError:
    sys.path[:] = [folder for folder in sys.path if folder]

from pigeon.cli.main import main

main()
