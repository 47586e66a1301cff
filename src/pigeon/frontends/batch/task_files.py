"""Reads tasks from a file or a program and turns them into specs, one by one, before anything starts.

JSON Lines have an object on each line, CSV a task in each row: columns named like members of a task are these members,
and every column is a field of the template. Only the hash of a task stays in memory, so that a file may have any
length; each problem is a `TaskProblem` with its line number, and reading continues.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Literal

from msgspec import Struct, structs

from pigeon.frontends.batch.records import Check, Task, TaskSpec, Workspace, hash_of
from pigeon.providers.local_models import FILE_MODELS
from pigeon.wire import codec
from pigeon.wire.errors import BadRecord, PigeonError, UsageError
from pigeon.wire.steering import parse_limits
from pigeon.workspaces.errors import WrongWorkspace
from pigeon.workspaces.url import parse_workspace_url

TaskFormat = Literal["jsonl", "csv"]
TaskSource = Iterable[Task | Mapping[str, Any] | str]
FORMATS: dict[str, TaskFormat] = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
}  # fmt: skip
MEMBERS = tuple(one.encode_name for one in structs.fields(Task))
# Columns that hold JSON, and columns that make up a workspace.
JSON_COLUMNS = ("limits", "output")
PLACES = ("folder", "git", "revision", "url")
LONGEST_ID = 200
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}\n]+)\}")
_PEEK = 4096
BOM = codecs.BOM_UTF8
# So that an endless iterable does not fill the disk.
MOST_TASKS = 1_000_000
# More than a person will read; a file of the wrong kind has a problem on every line.
MOST_PROBLEMS = 1000


class TaskProblem(Struct, frozen=True):
    """A problem with a task, and its place in the file."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class BatchDefaults(Struct, frozen=True, kw_only=True):
    """Defaults for what a task does not set."""

    template: str | None = None
    workspace: Workspace | None = None
    model: str | None = None
    limits: dict[str, Any] = {}
    output: dict[str, Any] | None = None
    check: Check | None = None
    options: dict[str, Any] = {}


class TaskTemplate(Struct, frozen=True):
    """A text with fields, `{name}` each; `{{` and `}}` are braces."""

    text: str

    @property
    def fields(self) -> list[str]:
        return [name.strip() for name in _FIELD.findall(self.text) if name]

    def fill(self, values: Mapping[str, Any]) -> str:
        """The text with the values; raises `BadRecord` that names a field without a value."""
        missing = sorted({name for name in self.fields if values.get(name) is None})
        if missing:
            raise BadRecord(f"the template has {{{missing[0]}}}, but the task has no such field")

        def value_of(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0][0]
            value = values[found[1].strip()]
            return value if isinstance(value, str) else codec.encode(value).decode()

        return _FIELD.sub(value_of, self.text)


class TaskReader:
    """Makes specs of tasks; `problems` are those found while reading, at most `MOST_PROBLEMS`.

    `absolute` resolves a path of a task; `check` takes a spec and its place in the file and returns why it cannot be
    run on this machine. More than `most` tasks are refused.
    """

    def __init__(
        self,
        defaults: BatchDefaults,
        absolute: Callable[[str], str],
        check: Callable[[TaskSpec, str], Iterable[str]],
        most: int = MOST_TASKS,
    ) -> None:
        self._defaults = defaults
        self._template = None if defaults.template is None else TaskTemplate(defaults.template)
        self._absolute = absolute
        self._check = check
        self._most = most
        self.problems: list[TaskProblem] = []
        self.problem_count = 0
        # Hashes instead of ids, which would take much more memory.
        self._taken: set[int] = set()
        self._repeated: dict[str, int] = {}

    def read_file(self, path: str, asked: TaskFormat | None = None) -> Iterator[TaskSpec]:
        """The tasks of a file, `-` for stdin; raises `UsageError` if it cannot be read."""
        with _open_input(path) as file:
            peeked = file.peek(_PEEK)
            if peeked.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise UsageError(f"{path}: it is UTF-16; save it as UTF-8")
            head = peeked.removeprefix(BOM).lstrip()[:1]
            kind = asked or FORMATS.get(os.path.splitext(path)[1].lower()) or ("csv" if head not in b"{[" else "jsonl")
            if kind == "csv":
                yield from self._read_specs(_csv_rows(file), True)
            else:
                yield from self._read_specs(_json_array(file) if head == b"[" else _json_lines(file), False)

    def read_values(self, values: TaskSource) -> Iterator[TaskSpec]:
        """The tasks of a program: records, dictionaries, or prompts."""
        yield from self._read_specs(((f"task {number}", value) for number, value in enumerate(values, 1)), False)

    def _read_specs(self, rows: Iterable[tuple[str, Any]], is_csv: bool) -> Iterator[TaskSpec]:
        for number, (place, value) in enumerate(rows, 1):
            if number > self._most:
                raise UsageError(
                    f"There are more than {self._most:,} tasks, and nothing was started. "
                    "If they do come to an end, allow more: --max-tasks, or max_tasks of pigeon.batch"
                )
            try:
                if isinstance(value, BadRecord):
                    raise value
                spec = self._to_spec(self._to_task(value, is_csv))
                reasons = list(self._check(spec, place))
            except PigeonError as error:
                reasons = [str(error)]
            self.add_problems([TaskProblem(place, reason) for reason in reasons], len(reasons))
            if not reasons:
                yield spec

    def add_problems(self, problems: list[TaskProblem], count: int) -> None:
        """Add problems, which are the first ones of `count`."""
        self.problem_count += count
        if len(self.problems) < MOST_PROBLEMS:
            self.problems += problems

    def _to_task(self, value: Any, is_csv: bool) -> Task:
        if isinstance(value, Task):
            return value
        if isinstance(value, str):
            value = {"prompt": value}
        if not isinstance(value, Mapping):
            raise BadRecord(f"expected an object with a prompt, got {_describe_type(value)}")
        members = _from_columns(value) if is_csv else dict(value)
        if self._template is not None:
            known = {*MEMBERS, *self._template.fields}
            if members.get("prompt") is None:
                members["prompt"] = self._template.fill(value)
            members = {name: one for name, one in members.items() if name in MEMBERS or name not in known}
        if not is_csv:
            self._refuse_unknown(members)
        elif self._template is None and members.get("prompt") is None:
            raise BadRecord("there is no prompt: add a prompt column, or a template with --prompt or --template")
        if members.get("limits") is not None:
            # Checked here, where the invalid limit can be named.
            parse_limits(members["limits"])
        return codec.convert({name: one for name, one in members.items() if one is not None}, Task)

    def _refuse_unknown(self, members: Mapping[str, Any]) -> None:
        unknown = [f'"{name}"' for name in members if name not in MEMBERS]
        if unknown:
            more = ", and no field of the template" if self._template is not None else ""
            raise BadRecord(f"unknown field {', '.join(unknown)}{more} (known: {', '.join(MEMBERS)})")

    def _to_spec(self, task: Task) -> TaskSpec:
        defaults = self._defaults
        if not task.prompt.strip():
            raise BadRecord('"prompt" is empty')
        given = parse_limits(task.limits or {})
        limits = {**defaults.limits, **codec.to_plain(given)}
        spec = TaskSpec(
            id=task.id or "",
            prompt=task.prompt,
            workspace=self._resolve_workspace(task.workspace or defaults.workspace),
            model=self._resolve_model(task.model or defaults.model),
            limits=limits,
            output=defaults.output if task.output is None else task.output,
            check=_to_check(defaults.check if task.check is None else task.check),
            group=task.group,
            options=defaults.options,
        )
        try:
            return structs.replace(spec, id=self._assign_id(task.id, spec))
        except UnicodeEncodeError:
            raise BadRecord("a text contains half of a surrogate pair, which cannot be sent to a model") from None

    def _assign_id(self, given: str | None, spec: TaskSpec) -> str:
        """The id of a task; by default derived from the task itself, so that it does not depend on other tasks."""
        if given is not None:
            if not given.strip() or len(given) > LONGEST_ID or not given.isprintable():
                raise BadRecord(f'"id" must be a string of 1 to {LONGEST_ID} printable characters')
            if not self._try_claim_id(given):
                raise BadRecord(f'another task already has the id "{given}"')
            return given
        own = id = hash_of(spec)[:12]
        if own in self._repeated or not self._try_claim_id(own):
            count = self._repeated[own] = self._repeated.get(own, 1) + 1
            id = f"{own}-{count}"
            if not self._try_claim_id(id):
                raise BadRecord(f'another task has the id "{id}", which this one would get; give it an id')
        return id

    def _try_claim_id(self, id: str) -> bool:
        key = int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest(), "big")
        if key in self._taken:
            return False
        self._taken.add(key)
        return True

    def _resolve_workspace(self, workspace: Workspace | None) -> Workspace | None:
        if workspace is None:
            return None
        if sum(place is not None for place in (workspace.folder, workspace.git, workspace.url)) != 1:
            raise BadRecord('"workspace" must have either "folder", "git" or "url"')
        if workspace.url is not None:
            return self._resolve_url(workspace, workspace.url)
        if workspace.folder is not None:
            if workspace.revision is not None:
                raise BadRecord('"workspace.revision" is for "git", not for "folder"')
            return Workspace(folder=self._absolute(workspace.folder))
        assert workspace.git is not None
        revision = workspace.revision
        if workspace.git.startswith("-") or not workspace.git.strip():
            raise BadRecord('"workspace.git" must be an address or a path')
        if revision is not None and (revision.startswith("-") or not revision.strip()):
            raise BadRecord('"workspace.revision" must be a branch, a tag or a commit')
        return Workspace(
            git=self._absolute(workspace.git) if is_local_repository(workspace.git) else workspace.git,
            revision=revision,
        )

    def _resolve_url(self, workspace: Workspace, url: str) -> Workspace:
        if workspace.revision is not None:
            raise BadRecord('"workspace.revision" is for "git", not for "url"')
        try:
            parse_workspace_url(url)
        except WrongWorkspace as error:
            raise BadRecord(f'"workspace.url": {error}') from None
        return workspace

    def _resolve_model(self, model: str | None) -> str | None:
        """The model with an absolute path, if it names a file: agents run in other folders."""
        kind, _, path = (model or "").partition("/")
        return f"{kind}/{self._absolute(path)}" if f"{kind}/" in FILE_MODELS and path else model


def is_local_repository(git: str) -> bool:
    """Whether a repository is on this machine; the other forms are `scheme://...` and `host:path`."""
    return "://" not in git and (":" not in git.partition("/")[0])


def _to_check(given: Check | str | None) -> Check | None:
    check = Check(command=given) if isinstance(given, str) else given
    if check is not None and not check.command.strip():
        raise BadRecord('"check" is empty')
    if check is not None and not 0 < check.seconds <= 7 * 24 * 3600:
        raise BadRecord('"check.seconds" must be greater than 0 and at most a week')
    return check


def _from_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the members of a task; an empty cell counts as absent."""
    cells = {name: cell for name, cell in row.items() if cell not in ("", None)}
    members: dict[str, Any] = {name: cells[name] for name in MEMBERS if name in cells and name != "workspace"}
    for name in JSON_COLUMNS:
        if name in members:
            try:
                members[name] = codec.decode(members[name])
            except BadRecord as error:
                raise BadRecord(f'the column "{name}" must be JSON: {error}') from None
    place = {name: cells[name] for name in PLACES if name in cells}
    if place:
        members["workspace"] = place
    return members


@contextmanager
def _open_input(path: str) -> Iterator[io.BufferedReader]:
    if path == "-":
        assert isinstance(sys.stdin.buffer, io.BufferedReader)
        yield sys.stdin.buffer
        return
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def _json_array(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """The items of a file that is one JSON list; unlike lines, it is held in memory as a whole."""
    try:
        values = codec.decode(file.read().removeprefix(BOM))
    except BadRecord as error:
        yield "line 1", BadRecord(f"it is not JSON: {error}")
        return
    yield from ((f"task {number}", value) for number, value in enumerate(values, 1))


def _json_lines(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(file, 1):
        text = (line.removeprefix(BOM) if number == 1 else line).strip()
        if not text:
            continue
        try:
            text.decode()
            yield f"line {number}", codec.decode(text)
        except UnicodeDecodeError:
            yield f"line {number}", BadRecord("it is not UTF-8")
        except BadRecord as error:
            yield f"line {number}", BadRecord(f"it is not JSON: {error}")


def _csv_rows(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    before = csv.field_size_limit(sys.maxsize)
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    try:
        yield from _read_rows(text)
    finally:
        text.detach()
        csv.field_size_limit(before)


def _read_rows(text: io.TextIOWrapper) -> Iterator[tuple[str, Any]]:
    """Each row with the number of its first line; a row that does not match the head is a problem."""
    lines = _Lines(text)
    delimiter = max((",", ";", "\t"), key=re.sub(r'"[^"]*"', "", lines.head).count)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    head = [name.strip() for name in next(rows, [])]
    if not head:
        return
    doubled = sorted({name for name in head if head.count(name) > 1})
    if doubled or "" in head:
        what = f'the column "{doubled[0]}" appears twice' if doubled and doubled[0] else "a column has no name"
        yield f"line {lines.number}", BadRecord(what)
        return
    while True:
        place = f"line {lines.number + 1}"
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield place, BadRecord(f"it cannot be read: {error}")
            return
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(head):
            yield place, BadRecord(f"it has {len(row)} of {len(head)} cells")
        elif any("\udc80" <= char <= "\udcff" for cell in row for char in cell):
            yield place, BadRecord("it is not UTF-8")
        else:
            yield place, dict(zip(head, row, strict=True))


class _Lines:
    """The lines of a file from its head, the first line that is not empty; counts those consumed."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.number = 0
        self.head = ""
        for line in lines:
            if line.strip():
                self.head = line
                break
            self.number += 1
        self._next: str | None = self.head or None

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line, self._next = (next(self._lines) if self._next is None else self._next), None
        self.number += 1
        return line


def _describe_type(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", list: "a list"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
