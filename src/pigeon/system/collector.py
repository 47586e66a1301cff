"""The garbage collector of a process of ours; `cli/main.py` switches it off while the process starts."""

from __future__ import annotations

import gc

# So many more objects than were freed before new ones are searched for cycles; Python's 700 suit short programs. Each
# hundredth search is of everything, and that of a long history takes as long as reading it.
NEW_OBJECTS = 10_000


def resume_collecting() -> None:
    """Switch it on again; nothing that exists by now is garbage, so none of it is searched."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 10, 10)
    gc.enable()
