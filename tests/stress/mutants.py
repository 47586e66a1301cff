"""How many deliberate damages the tests notice: `python -m stress.mutants N SEED`, or `make mutants`.

A seeded sample of damages (`stress.mutations`) is done one by one to a copy of the tree, and the tests that reach the
damaged code are run there, the nearest first, until one fails or hangs. What was found is kept in `.mutants/`, so that
the same call continues where it was interrupted; `--again` tries only the damages that nothing had noticed.
"""

from __future__ import annotations

import argparse
import ast
import json
import queue
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from stress.mutant_copies import ROOT, Copy, run_side_by_side, take_snapshot
from stress.mutant_reach import Reach, update_reach
from stress.mutations import KINDS, Mutation, blocks_of, mutations_of, package_of, source_files

KEPT = ROOT / ".mutants"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
# Tests are run for so many seconds as they took when they were watched: of code that thousands of tests reach, the rest
# is not run.
BUDGET = 8.0
SLOWER = 6.0  # than when the tests were watched, on a busy machine
# A test that is over sooner does not fail because the machine is busy.
QUICK = 0.2


def is_equivalent(mutation: Mutation, listed: list[dict[str, str]]) -> bool:
    """Whether it is listed, with the reason, as something that nobody could notice."""
    return any(
        entry["file"] == mutation.path
        and entry["function"] == mutation.function
        and entry["before"] == mutation.before
        and entry.get("after", mutation.after) == mutation.after
        for entry in listed
    )


def sample(root: Path, seed: int, count: int, package: str | None) -> list[Mutation]:
    """Damages by kind as `KINDS` weighs them, over all packages by the root of their size; one for each function."""
    listed = json.loads(EQUIVALENT.read_text())
    found: dict[str, dict[str, list[Mutation]]] = defaultdict(lambda: defaultdict(list))
    for path in source_files(root):
        for mutation in mutations_of(path, (root / path).read_bytes()):
            if package in (None, mutation.package) and not is_equivalent(mutation, listed):
                found[mutation.package][mutation.kind].append(mutation)
    chance = random.Random(seed)
    packages = sorted(found)
    weights = [sum(map(len, found[name].values())) ** 0.5 for name in packages]
    chosen: list[Mutation] = []
    functions: set[tuple[str, str]] = set()
    for _ in range(count * 50):
        if len(chosen) == count:
            break
        candidates = found[chance.choices(packages, weights)[0]][chance.choices([*KINDS], [*KINDS.values()])[0]]
        mutation = chance.choice(candidates) if candidates else None
        if mutation and (mutation.path, mutation.function) not in functions:
            functions.add((mutation.path, mutation.function))
            chosen.append(mutation)
    return chosen


def tests_within(tests: list[str], seconds: dict[str, float]) -> list[str]:
    """The first of them, as many as the budget allows."""
    chosen, spent = [], 0.0
    for test in tests:
        spent += seconds[test] + 0.01
        if spent > BUDGET and chosen:
            break
        chosen.append(test)
    return chosen


def judge(mutation: Mutation, copy: Copy, reach: Reach) -> dict[str, Any]:
    """Do the damage, run the tests, and undo it; a test that fails and is not quick must fail twice."""
    reached_by = reach.tests_for(mutation)
    tests = tests_within(reached_by, reach.seconds)
    text = (copy.folder / mutation.path).read_bytes()
    noticed = None
    copy.write(mutation.path, mutation.apply(text))
    try:
        if tests:
            expected = sum(reach.seconds[test] for test in tests)
            each = max(20.0, SLOWER * max(reach.seconds[test] for test in tests))
            noticed = copy.run(tests, 60 + SLOWER * expected, each).failed
            if (
                reach.seconds.get(noticed or "", 0.0) > QUICK
                and noticed
                and copy.run([noticed], 120, each).failed is None
            ):
                later = tests[tests.index(noticed) + 1 :]
                noticed = copy.run(later, 60 + SLOWER * expected, each).failed if later else None
    finally:
        copy.write(mutation.path, text)
    return {
        "key": mutation.key,
        "package": mutation.package,
        "kind": mutation.kind,
        "what": str(mutation),
        "noticed": noticed,
        "tests": len(tests),
        "reached by": len(reached_by),
    }


def judge_all(mutations: list[Mutation], jobs: int, snapshot: Path, reach: Reach, results: Path) -> None:
    """Judge them in `jobs` copies at once; each verdict is written as soon as it is known."""
    waiting: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
    for mutation in mutations:
        waiting.put(mutation)
    writing = threading.Lock()

    copies = [Copy(snapshot, snapshot.with_name(f"job-{number}")) for number in range(jobs)]

    def work(copy: Copy) -> None:
        while True:
            try:
                mutation = waiting.get_nowait()
            except queue.Empty:
                return
            verdict = judge(mutation, copy, reach)
            with writing, results.open("a") as file:
                file.write(json.dumps(verdict) + "\n")
                mark = "noticed " if verdict["noticed"] else "SURVIVED"
                print(f"{mark} {verdict['what']}\n    {verdict['noticed'] or ''}", flush=True)  # noqa: T201

    run_side_by_side(work, [(copy,) for copy in copies], copies)


def read_verdicts(file: Path) -> dict[str, dict[str, Any]]:
    """The last verdict on each damage."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {verdict["key"]: verdict for verdict in map(json.loads, lines)}


def unreached_blocks(root: Path, reach: Reach, package: str | None) -> list[str]:
    """Where no test has ever been: each damage there stays unnoticed."""
    found = []
    for path in source_files(root):
        if package in (None, package_of(path)):
            for block in blocks_of(ast.parse((root / path).read_bytes())):
                if not reach.blocks.get(f"{path}:{block.name}"):
                    found.append(f"{path}:{block.statements[0].lineno} {block.function}")
    return found


def report(verdicts: list[dict[str, Any]]) -> None:
    """The score by package and kind, and what survived."""
    for name in ("package", "kind"):
        all_of = Counter(verdict[name] for verdict in verdicts)
        noticed = Counter(verdict[name] for verdict in verdicts if verdict["noticed"])
        print(f"\nnoticed by {name}:")  # noqa: T201
        for one in sorted(all_of):
            print(f"  {one:20} {noticed[one]:3} of {all_of[one]:3}")  # noqa: T201
    survivors = [verdict for verdict in verdicts if not verdict["noticed"]]
    print(f"\n{len(survivors)} survivors:")  # noqa: T201
    for verdict in sorted(survivors, key=lambda verdict: verdict["what"]):
        print(f"{verdict['what']}\n    {verdict['tests']} tests run, {verdict['reached by']} reach it")  # noqa: T201
    share = (len(verdicts) - len(survivors)) / max(1, len(verdicts))
    print(f"\n{len(verdicts) - len(survivors)} of {len(verdicts)} noticed: {share:.2f}")  # noqa: T201


def main(arguments: list[str]) -> int:
    """`python -m stress.mutants N SEED [--package NAME] [--jobs N] [--again] [--list] [--unreached]`."""
    parser = argparse.ArgumentParser(prog="stress.mutants")
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--package", default=None, help="only of this package, as `mcp` or `frontends.acp`")
    parser.add_argument("--jobs", type=int, default=1, help="so many at once")
    parser.add_argument("--again", action="store_true", help="only what nothing had noticed")
    parser.add_argument("--list", action="store_true", help="the sample, without running anything")
    parser.add_argument("--unreached", action="store_true", help="no damages: the code that no test reaches")
    options = parser.parse_args(arguments)
    KEPT.mkdir(exist_ok=True)
    results = KEPT / f"sample-{options.seed}-{options.package or 'all'}.jsonl"
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        snapshot = take_snapshot(folder / "snapshot")
        chosen = sample(snapshot, options.seed, options.count, options.package or None)
        if options.list:
            print("\n".join(map(str, chosen)))  # noqa: T201
            return 0
        if options.unreached:
            reach = update_reach(KEPT / "reach.json", snapshot, options.jobs)
            print("\n".join(unreached_blocks(snapshot, reach, options.package or None)))  # noqa: T201
            return 0
        known = read_verdicts(results)
        waiting = [one for one in chosen if one.key not in known or (options.again and not known[one.key]["noticed"])]
        reach = update_reach(KEPT / "reach.json", snapshot, options.jobs)
        judge_all(waiting, options.jobs, snapshot, reach, results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    known = read_verdicts(results)
    report([known[one.key] for one in chosen if one.key in known])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
