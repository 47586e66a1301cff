"""The garbage collector of a process that serves: new garbage is found, what there was at the start is not searched."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
from pigeon.system.collector import NEW_OBJECTS, resume_collecting

class Node: pass

gc.disable()
old = [Node() for _ in range(100)]
resume_collecting()
assert gc.isenabled() and gc.get_freeze_count() > 100
node = Node(); node.itself = node
gone = weakref.ref(node)
del node
kept = []
while gone() is not None and len(kept) < 3 * NEW_OBJECTS:
    kept.append([])
print(len(kept))
"""


def test_garbage_is_found_after_some_thousand_new_objects() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert 1_000 < int(ran.stdout) <= 10_000
