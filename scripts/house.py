"""Measures of the source: how far a reader has to walk, and what `tests/architecture/` forbids.

`make house` prints them for this checkout and fails when a rule of `tests/architecture/` is broken. `--root PATH`
measures another checkout instead, for a comparison; its rules are not checked. `--files` lists the files of the
prompt's path, `--lists` what the other figures count.
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
from pathlib import Path

from house_facts import named_facts
from house_measures import MOST_ATTRIBUTES, SMALL, SourceTree
from house_names import SHORTEST_DOCSTRING, riddles, share_of_riddles, short_docstrings
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
    allowed = _allowed() if root == OWN_ROOT else {}
    for what, figure in [*_path_of(first, second), *_source_of(tree, allowed)]:
        _say(f"{what:<66} {figure}")
    if options.files:
        marked = [file if file in second.files else f"{file} (the first prompt only)" for file in first.files]
        _list("files of the prompt's path, in the order in which it reaches them", marked)
    if options.lists:
        _list_counted(tree)
    if root != OWN_ROOT:
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "tests/architecture"]
    return 1 if subprocess.run(command, cwd=root, check=False).returncode else 0


def _path_of(first: Trace, second: Trace) -> list[tuple[str, str]]:
    return [
        ("files the first prompt runs through until its first text_delta", f"{len(first.files)}"),
        ("  functions", f"{len(first.functions)}"),
        ("  changes of package", f"{first.changes_of_package}"),
        ("files a later prompt runs through", f"{len(second.files)}"),
        ("  functions", f"{len(second.functions)}"),
        ("  changes of package", f"{second.changes_of_package}"),
    ]


def _allowed() -> dict[str, int]:
    """How many exceptions each test of `tests/architecture/` lets through, by the name of its list."""
    sys.path.insert(0, str(OWN_ROOT / "tests"))
    counts = {}
    for path in sorted((OWN_ROOT / "tests" / "architecture").glob("test_*.py")):
        names = runpy.run_path(str(path))
        counts.update({f"{path.stem}.{name}": len(value) for name, value in names.items() if isinstance(value, dict)})
    return counts


def _source_of(tree: SourceTree, allowed: dict[str, int]) -> list[tuple[str, str]]:
    def but(count: int, exceptions: str) -> str:
        reasoned = allowed.get(exceptions, 0)
        return f"{count - reasoned}, and {reasoned} allowed with a reason" if reasoned else f"{count}"

    folders = tree.folders()
    largest = next(iter(folders))
    full = ", ".join(f"{folder} {count}" for folder, count in folders.items() if count > FULL) or "none"
    foreign = {one.short for one in tree.foreign_assignments()}
    lines = sum(map(tree.lines, tree.modules))
    named = named_facts(tree)
    return [
        (
            "places that name a tool, API, event feature or session file by hand",
            f"{len(named)}, in {len({one.path for one in named})} files, of which "
            f"{allowed.get('test_facts.EXCEPTIONS', 0)} are allowed with a reason",
        ),
        ("modules in the fullest folder", f"{folders[largest]} ({largest})"),
        (f"  folders with more than {FULL}", full),
        ("modules with exactly one importer, in their own package", f"{len(tree.single_importers())}"),
        (f"  of which have fewer than {SMALL} lines", f"{len(tree.small_fragments())}"),
        ("class names that exist twice or more", but(len(tree.repeated_classes()), "test_names.SHARED")),
        (f"classes with more than {MOST_ATTRIBUTES} attributes", f"{len(tree.large_objects())}"),
        (
            "attributes assigned from outside their class",
            but(len(foreign), "test_wiring.ALLOWED"),
        ),
        ("public names that nothing in the source uses", but(len(tree.unused_names()), "test_dead_code.NAMES")),
        (
            "functions named by a bare participle or an everyday verb",
            f"{len(riddles(tree))} ({share_of_riddles(tree):.1f} %)",
        ),
        (f"docstrings under {SHORTEST_DOCSTRING} characters", f"{len(short_docstrings(tree))}"),
        ("comments per 100 lines", f"{100 * tree.comments() / lines:.2f}"),
        ("files", f"{len(tree.modules)}"),
        ("lines", f"{lines}"),
    ]


def _list_counted(tree: SourceTree) -> None:
    _list("small modules and their only importer", [f"{one} < {by}" for one, by in tree.small_fragments().items()])
    classes = tree.repeated_classes().items()
    _list("class names that exist twice or more", [f"{name}: {', '.join(found)}" for name, found in sorted(classes)])
    large = tree.large_objects().items()
    _list(f"classes with more than {MOST_ATTRIBUTES} attributes", [f"{name} {count}" for name, count in large])
    _list("foreign assignments", [f"{one} (line {one.line})" for one in tree.foreign_assignments()])
    _list("unused names", tree.unused_names())
    _list("functions named by a bare participle or an everyday verb", riddles(tree))
    _list(f"docstrings under {SHORTEST_DOCSTRING} characters", short_docstrings(tree))
    _list("tools, APIs, features and session files named by hand", [str(one) for one in named_facts(tree)])


def _list(title: str, entries: list[str]) -> None:
    _say(f"\n{title}:")
    for entry in entries:
        _say(f"  {entry}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
