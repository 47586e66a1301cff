"""The files of a report: `results.csv`, `results.parquet` and `report.html` in the folder of a batch, and a page that
compares two batches.

Results are read from the folder once for each file, one at a time, so that memory does not grow with their texts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pigeon.frontends.batch.batch_folder import BatchFolder
from pigeon.frontends.batch.records import TaskResult, hash_of
from pigeon.frontends.batch.report.comparison import compare_results, render_comparison
from pigeon.frontends.batch.report.measured import BatchFigures
from pigeon.frontends.batch.report.page import BatchView, render_report
from pigeon.frontends.batch.report.plots import NO_EXTRA
from pigeon.frontends.batch.report.tables import write_csv, write_parquet
from pigeon.frontends.batch.task_run import read_result
from pigeon.system.extras import make_install_command
from pigeon.system.files import create_or_replace_file

REPORT_FILE = "report.html"
COMPARISON_FILE = "comparison.html"


def write_report(folder: BatchFolder) -> list[str]:
    """Write all files of a report; returns what could not be written, and why."""
    missing = []
    write_csv(folder.path, results_of(folder))
    try:
        write_parquet(folder.path, results_of(folder))
    except ImportError as error:
        missing.append(f"{NO_EXTRA} ({error.name} is missing): {make_install_command('report')}")
    pieces = render_report(view_of(folder), lambda: results_of(folder))
    create_or_replace_file(os.path.join(folder.path, REPORT_FILE), _encode_pieces(pieces), 0o600)
    return missing


def write_comparison(first: BatchFolder, second: BatchFolder, path: str) -> None:
    """Write the page that compares two batches."""
    places = {spec.id: os.path.join(second.path, hash_of(spec)) for spec in second.read_tasks()}

    def find(id: str) -> TaskResult | None:
        return read_result(places[id]) if id in places else None

    views = view_of(first), view_of(second)
    found = compare_results(results_of(first), find, views[1].figures.everything.count)
    ways = tuple(os.path.relpath(folder.path, os.path.dirname(path)) for folder in (first, second))
    create_or_replace_file(path, _encode_pieces(render_comparison(views, (ways[0], ways[1]), found)), 0o600)


def results_of(folder: BatchFolder) -> Iterator[TaskResult]:
    """The results of a batch, in the order of its tasks."""
    for spec in folder.read_tasks():
        result = folder.read_result(spec)
        if result is not None:
            yield result


def view_of(folder: BatchFolder) -> BatchView:
    record, figures, total = folder.read_record(), BatchFigures(), 0
    for spec in folder.read_tasks():
        total += 1
        result = folder.read_result(spec)
        if result is not None:
            figures.add(result)
    title = record.title or os.path.basename(folder.path)
    return BatchView(title=title, began=record.began, total=total, figures=figures, wasted=folder.read_wasted_cost())


def _encode_pieces(pieces: Iterator[str]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece.encode("utf-8", "replace")
