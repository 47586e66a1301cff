"""Which tests reach which code: one run of the tests over a copy whose blocks report that they are reached.

Every process that runs the copy reports, also one that was forked or started by an agent: the number of the running
test is in a file that all of them map into memory. Code is named by function and block, so that what is known stays
true when other code changes; test files that are new or changed are run again.
"""

from __future__ import annotations

import hashlib
import json
import queue
import re
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from stress.mutant_copies import LEFT_OUT, Copy, run_side_by_side
from stress.mutations import Mutation, add_probes, source_files

# Written into the copy as a module beside the package. Tests replace functions of `os`, so it keeps its own.
PROBE = """
import mmap, os
from os import close as _close, open as _open, write as _write

_folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_log = _folder + "/reached-blocks"
_flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_seen = set()
try:
    _file = _open(_folder + "/current-test", os.O_RDONLY)
    _current = memoryview(mmap.mmap(_file, 4096, prot=mmap.PROT_READ)).cast("I")
    _close(_file)
except OSError:
    _current = [0]

def reached(block):
    entry = (_current[0], block)
    if entry in _seen:
        return
    _seen.add(entry)
    try:
        file = _open(_log, _flags)
        try:
            _write(file, b"%d %d\\n" % entry)
        finally:
            _close(file)
    except OSError:
        pass
"""
# What is known is kept after so many.
FILES_AT_ONCE = 30
# Of a fixture whose value several tests of a file use.
WIDER_SCOPE = re.compile(r"""(?<!loop_)scope=["'](class|module|package|session)["']""")
# The plugin of pytest that says which test is running, and how the tests ended.
PLUGIN = """
import json, mmap, struct
from pathlib import Path
import pytest

_folder = Path(__file__).resolve().parents[1]
_count = 0
with (_folder / "current-test").open("r+b") as _file:
    _memory = mmap.mmap(_file.fileno(), 4096)

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    global _count
    _count += 1
    _memory[0:4] = struct.pack("I", _count)
    item.user_properties.append(("number", _count))
    item.number_of_run = _count
    try:
        return (yield)
    finally:
        _memory[0:4] = struct.pack("I", 0)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    with (_folder / "reports").open("a") as file:
        file.write(json.dumps([item.number_of_run, item.nodeid, report.when, report.outcome, call.duration]) + "\\n")
    return report
"""


@dataclass
class Reach:
    """`seconds` of each test that passed; the tests of each block, by `path:block`.

    In the files of `sharing`, what one test has reached for all of them (in a fixture of the module) counts for all.
    """

    files: dict[str, str] = field(default_factory=dict)
    sharing: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    blocks: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @cached_property
    def breadth(self) -> Counter[str]:
        """How many blocks each test reaches."""
        return Counter(test for tests in self.blocks.values() for test in tests)

    def tests_for(self, mutation: Mutation) -> list[str]:
        """The tests that reach its block, the nearest first: those of the mirror folder, then those that reach little
        else."""
        name = f"{mutation.path}:{mutation.block}"
        found = self.blocks.get(name, set())
        mirror = str(Path("tests", *Path(mutation.path).parts[2:-1])) + "/"
        if not found and not any(self.blocks.get(f"{name.rpartition('#')[0]}#{number}") for number in range(100)):
            # New code, or code that only an import runs; of other functions, the block is in no test's way.
            found = {test for test in self.seconds if test.startswith(mirror)}
        words = set(re.findall(r"[a-z]+", f"{Path(mutation.path).stem}_{mutation.function}".lower()))
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in found:
            by_file[test.partition("::")[0]].append(test)

        in_order = {file: sorted(tests, key=self.seconds.__getitem__) for file, tests in by_file.items()}
        for file in self.sharing & in_order.keys():
            more = [test for test in self.seconds if test.partition("::")[0] == file and test not in found]
            in_order[file] += sorted(more, key=self.seconds.__getitem__)

        def distance(file: str) -> tuple[bool, int, float]:
            shared = len(words & set(re.findall(r"[a-z]+", Path(file).stem.lower())))
            breadth = sum(self.breadth[test] for test in by_file[file]) / len(by_file[file])
            return not file.startswith(mirror), -shared, breadth

        return [test for file in sorted(in_order, key=distance) for test in in_order[file]]

    @classmethod
    def load(cls, file: Path) -> Reach:
        """What is known from earlier runs, if anything is."""
        reach = cls()
        if file.exists():
            data = json.loads(file.read_text())
            tests = data["tests"]
            reach.files, reach.seconds = data["files"], data["seconds"]
            for name, numbers in data["blocks"].items():
                reach.blocks[name] = {tests[number] for number in numbers}
        return reach

    def save(self, file: Path) -> None:
        """Keep it for the next run."""
        tests = sorted(self.seconds)
        number_of = {test: number for number, test in enumerate(tests)}
        blocks = {
            name: sorted(number_of[test] for test in found if test in number_of) for name, found in self.blocks.items()
        }
        data = {"files": self.files, "seconds": self.seconds, "tests": tests, "blocks": blocks}
        file.write_text(json.dumps(data, separators=(",", ":")))


def update_reach(file: Path, snapshot: Path, jobs: int) -> Reach:
    """Run the test files that are new or changed since the last time, in `jobs` copies at once."""
    reach = Reach.load(file)
    now = {
        str(path.relative_to(snapshot)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted((snapshot / "tests").rglob("test_*.py"))
        if not str(path.relative_to(snapshot)).startswith(LEFT_OUT)
    }
    reach.sharing = {name for name in now if WIDER_SCOPE.search((snapshot / name).read_text())}
    changed = [name for name, digest in now.items() if reach.files.get(name) != digest]
    if not changed:
        return reach
    outdated = {test for test in reach.seconds if test.partition("::")[0] in changed}
    reach.seconds = {test: seconds for test, seconds in reach.seconds.items() if test not in outdated}
    for tests in reach.blocks.values():
        tests.difference_update(outdated)
    reach.files = {name: digest for name, digest in reach.files.items() if now.get(name) == digest}
    waiting: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    for start in range(0, len(changed), FILES_AT_ONCE):
        waiting.put(changed[start : start + FILES_AT_ONCE])
    saving = threading.Lock()

    def work(copy: Copy) -> None:
        names = _write_probes(copy)
        while True:
            try:
                files = waiting.get_nowait()
            except queue.Empty:
                return
            print(f"watching which code {len(files)} test files reach, {files[0]} first", flush=True)  # noqa: T201
            _run_watched(copy, files)
            with saving:
                ran = _read_reached(copy.folder, names, reach)
                reach.files.update((name, now[name]) for name in files if name in ran)
                reach.save(file)
                for name in files:
                    if name not in ran:
                        print(f"no test of {name} has run", flush=True)  # noqa: T201

    copies = [Copy(snapshot, snapshot.with_name(f"reach-{number}")) for number in range(jobs)]
    run_side_by_side(work, [(copy,) for copy in copies], copies)
    return reach


def _write_probes(copy: Copy) -> dict[int, str]:
    """Put the probes into the copy; returns the name of each block by its number."""
    names: dict[str, int] = {}
    for path in source_files(copy.folder):

        def number_of(block: str, path: str = path) -> int:
            return names.setdefault(f"{path}:{block}", len(names) + 1)

        copy.write(path, add_probes((copy.folder / path).read_bytes(), number_of).encode())
    (copy.folder / "src/pigeon_reach.py").write_text(PROBE)
    (copy.folder / "src/pigeon_reach_plugin.py").write_text(PLUGIN)
    return {number: name for name, number in names.items()}


def _run_watched(copy: Copy, files: list[str]) -> None:
    (copy.folder / "current-test").write_bytes(bytes(4096))
    (copy.folder / "reached-blocks").write_bytes(b"")
    (copy.folder / "reports").write_text("")
    copy.run(files, 3600, 180, "-p", "pigeon_reach_plugin", "--maxfail=100000")


def _read_reached(folder: Path, name_of: dict[int, str], reach: Reach) -> set[str]:
    """Add what the tests have reached; returns the files whose tests have run."""
    passed: dict[int, str] = {}
    bad: set[int] = set()
    seconds: dict[int, float] = defaultdict(float)
    for line in (folder / "reports").read_text().splitlines():
        number, test, _, outcome, took = json.loads(line)
        passed[number] = test
        seconds[number] += took
        if outcome != "passed":
            bad.add(number)
    for number, test in passed.items():
        # The path of the copy in a name means that the test is called otherwise elsewhere.
        if number not in bad and "\n" not in test and folder.name not in test:
            reach.seconds[test] = round(seconds[number], 3)
    with (folder / "reached-blocks").open() as lines:
        for line in lines:
            test_number, _, block = line.partition(" ")
            if passed.get(number := int(test_number)) in reach.seconds and number not in bad:
                reach.blocks[name_of[int(block)]].add(passed[number])
    return {test.partition("::")[0] for test in passed.values()}
