"""The measures of the house: how far a reader has to walk, and what `tests/architecture/` forbids.

`make house` prints them for this checkout and fails when a rule of `tests/architecture/` is broken. `--root PATH`
measures another checkout instead, for a comparison; its rules are not checked. `--files` lists the files of the
prompt's path, `--lists` what the other figures count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from house_measures import SMALL, SourceTree
from prompt_trace import OWN_ROOT, Trace, trace_prompts

FULL = 15


def main() -> int:
    """Print the measures; the exit code says whether the rules hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=OWN_ROOT, help="the checkout to measure (default: this one)")
    parser.add_argument("--files", action="store_true", help="list the files that a prompt runs through")
    parser.add_argument("--lists", action="store_true", help="list what the figures count")
    options = parser.parse_args()
    root = options.root.resolve()
    tree, (first, second) = SourceTree(root), trace_prompts(root)
    for what, figure in [*_path_of(first, second), *_source_of(tree)]:
        _say(f"{what:<66} {figure}")
    if options.files:
        marked = [file if file in second.files else f"{file} (the first prompt only)" for file in first.files]
        _list("files of the prompt's path, in the order in which it reaches them", marked)
    if options.lists:
        _list_counted(tree)
    if root != OWN_ROOT:
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/architecture"]
    return 1 if subprocess.run(command, cwd=root, check=False).returncode else 0


def _path_of(first: Trace, second: Trace) -> list[tuple[str, str]]:
    return [
        ("files the first prompt runs through until its first text_delta", f"{len(first.files)}"),
        ("  functions", f"{len(first.functions)}"),
        ("  changes of room", f"{first.changes_of_room}"),
        ("files a later prompt runs through", f"{len(second.files)}"),
        ("  functions", f"{len(second.functions)}"),
        ("  changes of room", f"{second.changes_of_room}"),
    ]


def _source_of(tree: SourceTree) -> list[tuple[str, str]]:
    folders = tree.folders()
    largest = next(iter(folders))
    full = ", ".join(f"{folder} {count}" for folder, count in folders.items() if count > FULL) or "none"
    foreign = tree.foreign_assignments()
    lines = sum(map(tree.lines, tree.modules))
    return [
        ("modules in the fullest folder", f"{folders[largest]} ({largest})"),
        (f"  folders with more than {FULL}", full),
        ("modules with exactly one importer, in their own room", f"{len(tree.single_importers())}"),
        (f"  of which have fewer than {SMALL} lines", f"{len(tree.small_fragments())}"),
        ("class names that exist twice or more", f"{len(tree.repeated_classes())}"),
        ("attributes assigned from outside their class", f"{len({one.short for one in foreign})}"),
        ("  places where that happens", f"{len(foreign)}"),
        ("public names that nothing in the source uses", f"{len(tree.unused_names())}"),
        ("comments per 100 lines", f"{100 * tree.comments() / lines:.2f}"),
        ("files", f"{len(tree.modules)}"),
        ("lines", f"{lines}"),
    ]


def _list_counted(tree: SourceTree) -> None:
    _list("small modules and their only importer", [f"{one} < {by}" for one, by in tree.small_fragments().items()])
    classes = tree.repeated_classes().items()
    _list("class names that exist twice or more", [f"{name}: {', '.join(found)}" for name, found in sorted(classes)])
    _list("foreign assignments", [f"{one} (line {one.line})" for one in tree.foreign_assignments()])
    _list("unused names", tree.unused_names())


def _list(title: str, entries: list[str]) -> None:
    _say(f"\n{title}:")
    for entry in entries:
        _say(f"  {entry}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
