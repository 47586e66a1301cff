"""The results of a batch as tables for other programs: CSV, and Parquet where pyarrow is installed (extra `report`)."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from pigeon.frontends.batch.records import TaskResult
from pigeon.system.files import create_or_replace_file, create_private_file
from pigeon.wire import codec

CSV_FILE = "results.csv"
PARQUET_FILE = "results.parquet"
AT_ONCE = 1000
# Spreadsheet programs evaluate text that begins like this as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Each column with its type in Parquet.
COLUMNS: dict[str, tuple[str, Callable[[TaskResult], Any]]] = {
    "id": ("string", lambda one: one.id),
    "status": ("string", lambda one: one.status),
    "ended": ("string", lambda one: one.ended),
    "group": ("string", lambda one: one.group),
    "model": ("string", lambda one: one.model),
    "cost": ("double", lambda one: one.cost),
    "tokens": ("int64", lambda one: one.usage.total_tokens),
    "input_tokens": ("int64", lambda one: one.usage.input),
    "output_tokens": ("int64", lambda one: one.usage.output),
    "cache_read_tokens": ("int64", lambda one: one.usage.cache_read),
    "cache_write_tokens": ("int64", lambda one: one.usage.cache_write),
    "seconds": ("double", lambda one: one.seconds),
    "turns": ("int64", lambda one: one.turns),
    "tool_calls": ("int64", lambda one: sum(one.tools.values())),
    "tools": ("string", lambda one: codec.encode(one.tools).decode()),
    "agents": ("int64", lambda one: one.agents),
    "check_passed": ("bool", lambda one: None if one.check is None else one.check.passed),
    "check_exit_code": ("int64", lambda one: None if one.check is None else one.check.exit_code),
    "check_seconds": ("double", lambda one: None if one.check is None else one.check.seconds),
    "error": ("string", lambda one: one.error),
    "output": ("string", lambda one: None if one.output is None else codec.encode(one.output).decode()),
    "text": ("string", lambda one: one.text),
    "commit": ("string", lambda one: one.commit),
    "began": ("time", lambda one: one.began),
    "folder": ("string", lambda one: one.folder),
    "session": ("string", lambda one: one.session),
}


def write_csv(folder: str, results: Iterable[TaskResult]) -> None:
    """Write `results.csv`; text that a spreadsheet program would run as a formula is prefixed with an apostrophe."""
    create_or_replace_file(os.path.join(folder, CSV_FILE), _csv_blocks(results), 0o600)


def _csv_blocks(results: Iterable[TaskResult]) -> Iterator[bytes]:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for result in results:
        writer.writerow([_to_cell(value(result)) for _, value in COLUMNS.values()])
        if text.tell() > 1 << 20:
            yield _drain_text(text)
    yield _drain_text(text)


def _drain_text(text: io.StringIO) -> bytes:
    block = text.getvalue().encode("utf-8", "replace")
    text.seek(0)
    text.truncate()
    return block


def _to_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def write_parquet(folder: str, results: Iterable[TaskResult]) -> None:
    """Write `results.parquet`; raises `ImportError` without pyarrow."""
    import pyarrow
    import pyarrow.parquet

    kinds = {"string": pyarrow.string(), "double": pyarrow.float64(), "int64": pyarrow.int64(), "bool": pyarrow.bool_()}
    kinds["time"] = pyarrow.timestamp("ms", tz="UTC")
    schema = pyarrow.schema([(name, kinds[kind]) for name, (kind, _) in COLUMNS.items()])
    path = os.path.join(folder, PARQUET_FILE)
    half = os.path.join(folder, f".{PARQUET_FILE}.tmp")
    rows = iter(results)
    with create_private_file(half) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while block := list(islice(rows, AT_ONCE)):
            columns = {name: [_replace_surrogates(value(one)) for one in block] for name, (_, value) in COLUMNS.items()}
            writer.write_table(pyarrow.table(columns, schema=schema))
    os.replace(half, path)


def _replace_surrogates(value: Any) -> Any:
    """The value without lone surrogates, which cannot be encoded."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
