"""Before anything starts, every task is read and checked against this machine, and the folder of the batch is created
or resumed.

All problems are reported at once, with line numbers, and then nothing has changed. A model is checked by building an
agent with it, so that options, keys and extensions count as they will later; what many tasks have in common is checked
once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from tempfile import mkdtemp

from msgspec import Struct, field, structs

from pigeon.agent.output_schema import OutputSchema
from pigeon.app.build import build
from pigeon.app.models import list_secret_variables
from pigeon.app.options import AgentOptions
from pigeon.frontends.batch.batch_folder import BatchFolder, BatchRecord, NewTasks, TaskChanges
from pigeon.frontends.batch.places.revisions import LookupWatch, Revisions
from pigeon.frontends.batch.places.workspaces import Workspaces, remove_folder
from pigeon.frontends.batch.records import TaskSpec
from pigeon.frontends.batch.shared_limits import Rate
from pigeon.frontends.batch.task_files import MOST_TASKS, BatchDefaults, TaskFormat, TaskProblem, TaskReader, TaskSource
from pigeon.frontends.batch.task_run import options_of
from pigeon.providers.scripted.api import SCRIPTED
from pigeon.system.clock import SteadyLoop, now_ms
from pigeon.system.environment import Environment
from pigeon.system.git import Git
from pigeon.system.process.start import ProcessOwner
from pigeon.wire import codec
from pigeon.wire.errors import PigeonError, Refusal, UsageError
from pigeon.wire.model import Model

NO_MODEL = "there is no model: give one to the task or to the batch (--model)"


class BatchRequest(Struct, frozen=True, kw_only=True):
    """A request to start or resume a batch.

    `tasks` is a file, an iterable from a program, or None to continue with those of the folder. When a batch is
    resumed, members that are None keep their earlier values.
    """

    out: str
    tasks: str | TaskSource | None = None
    format: TaskFormat | None = None
    resume: bool = False
    defaults: BatchDefaults = field(default_factory=BatchDefaults)
    title: str | None = None
    max_cost: float | None = None
    rates: dict[str, Rate] | None = None
    keep: str | None = None
    engine: str | None = None
    api_key: str | None = None
    max_tasks: int = MOST_TASKS
    # On a cluster, the keys may exist only on its machines.
    keys_are_here: bool = True


class Prepared(Struct, frozen=True):
    """A batch that can start, and how its tasks differ from those it had before."""

    record: BatchRecord
    changes: TaskChanges | None


class BadTasks(UsageError):
    """Tasks that cannot be run; nothing was started."""

    def __init__(self, problems: list[TaskProblem], count: int, source: str) -> None:
        """`problems` are the first ones of `count`."""
        many = "1 task cannot" if count == 1 else f"{count:,} problems: these tasks cannot"
        rest = [f"and {count - len(problems):,} more"] if count > len(problems) else []
        super().__init__("\n".join([f"{source}: {many} be run, and nothing was started", *map(str, problems), *rest]))
        self.problems = problems


def prepare_batch(
    request: BatchRequest, folder: BatchFolder, environment: Environment, cache: str, watch: LookupWatch
) -> Prepared:
    """Check everything and write the tasks to the folder; raises `UsageError` and `StartupError`.

    The folder must be locked; `cache` is the folder of mirrors, `watch` follows the look-up of repositories. Must not
    run in the thread of an event loop.
    """
    if folder.exists and not request.resume:
        raise UsageError(
            f"{folder.path} already has a batch. Continue it: pigeon batch --resume {folder.path}\n"
            "Or choose another folder"
        )
    if not folder.exists:
        folder.check_empty()
    before = folder.read_record() if folder.exists else None
    if before is not None:
        folder.adopt_leftover_tasks()
    written = None
    if request.tasks is not None:
        with PlaceCheck(request, environment, cache, () if before is None else folder.read_tasks()) as check:
            written = _write_checked_tasks(request, folder, environment, check, watch, before)
    record = before or BatchRecord(id=environment.ids.session_id(now_ms()), began=now_ms())
    given = {"title": request.title, "max_cost": request.max_cost, "rates": request.rates}
    given |= {"keep": request.keep, "engine": request.engine}
    record = structs.replace(record, **{name: value for name, value in given.items() if value is not None})
    # In this order: a kill in between must not leave tasks without a record, which nothing could recognize.
    folder.put_record(record)
    if written is None:
        return Prepared(record, None)
    changes = None if before is None else written.count_changes()
    written.replace_batch_tasks()
    return Prepared(record, changes)


def _write_checked_tasks(
    request: BatchRequest,
    folder: BatchFolder,
    environment: Environment,
    check: PlaceCheck,
    watch: LookupWatch,
    before: BatchRecord | None,
) -> NewTasks:
    """The checked tasks in a file next to those of the batch."""
    source = request.tasks if isinstance(request.tasks, str) else "tasks"
    reader = TaskReader(request.defaults, environment.absolute_path, check.collect_problems, request.max_tasks)
    assert request.tasks is not None
    specs: Iterator[TaskSpec] = (
        reader.read_file(source, request.format)
        if isinstance(request.tasks, str)
        else reader.read_values(request.tasks)
    )
    written = folder.stage_tasks(specs)
    try:
        reader.add_problems(*check.resolve_revisions(watch))
        if reader.problems:
            raise BadTasks(sorted(reader.problems, key=_number_of), reader.problem_count, source)
        if check.has_repositories:
            written.replace_specs(check.pin_commit)
        if not written.count:
            raise UsageError(f"{source}: there is no task in it")
        changes = None if before is None else written.count_changes()
        if changes is not None and not changes.same:
            raise UsageError(
                f"{folder.path} has another batch: none of its {changes.gone} tasks is among the {changes.new} of "
                f"{source} (a task is the same if its prompt, workspace, model, limits, check and options are). "
                "Name another folder"
            )
    except BaseException:
        written.drop()
        raise
    return written


def _number_of(problem: TaskProblem) -> int:
    return int(problem.place.rpartition(" ")[2])


class PlaceCheck:
    """Checks specs against this machine: folders, repositories, schemas and models."""

    def __init__(self, request: BatchRequest, environment: Environment, cache: str, before: Iterable[TaskSpec]) -> None:
        """`cache` has the mirrors of repositories; `before` holds the tasks of the batch that is resumed."""
        self._environment = environment
        self._api_key = request.api_key
        self._keys_are_here = request.keys_are_here
        # Ctrl-C cancels what it runs, which then ends in order.
        self._runner = asyncio.Runner(loop_factory=SteadyLoop)
        self._owner = ProcessOwner()
        git = Git(
            self._owner,
            environment.variables,
            list_secret_variables(environment.agent_dir(), environment.variables),
        )
        self._revisions = Revisions(git, Workspaces(cache, "", git), before, not request.keys_are_here)
        self._known: dict[tuple[str, ...], str | None] = {}

    def __enter__(self) -> PlaceCheck:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._owner.kill_everything())
        self._runner.close()

    def collect_problems(self, spec: TaskSpec, place: str) -> Iterable[str]:
        """Returns why a task cannot be run here. Its revision is only noted: `resolve_revisions` resolves them all
        together."""
        workspace = spec.workspace
        found = []
        self._revisions.add_workspace(workspace, place)
        if workspace is not None and workspace.folder is not None:
            found.append(self._find_problem_once(("folder", workspace.folder), _folder_problem, workspace.folder))
        if spec.output is not None:
            found.append(
                self._find_problem_once(("output", codec.encode(spec.output).decode()), _schema_problem, spec.output)
            )
        found.append(
            self._find_problem_once(
                ("model", spec.model or "", codec.encode(spec.options).decode()), self._run_model_check, spec
            )
        )
        return [one for one in found if one]

    def resolve_revisions(self, watch: LookupWatch) -> tuple[list[TaskProblem], int]:
        """Resolves the revisions of all tasks; returns the first problems and their total number."""
        missing = self._runner.run(self._revisions.resolve_commits(watch))
        problems = [TaskProblem(place, one.reason) for one in missing for place in one.places]
        return problems, sum(one.count for one in missing)

    @property
    def has_repositories(self) -> bool:
        return self._revisions.has_repositories

    def pin_commit(self, spec: TaskSpec) -> TaskSpec:
        return self._revisions.pin_commit(spec)

    def _find_problem_once(
        self, key: tuple[str, ...], look: Callable[..., str | None], *arguments: object
    ) -> str | None:
        if key not in self._known:
            self._known[key] = look(*arguments)
        return self._known[key]

    def _run_model_check(self, spec: TaskSpec) -> str | None:
        try:
            return self._runner.run(self._find_model_problem(spec))
        except PigeonError as error:
            return str(error)

    async def _find_model_problem(self, spec: TaskSpec) -> str | None:
        path = (spec.model or "").partition("/")
        if path[0] == SCRIPTED.name:
            from pigeon.providers.scripted.script import read_script

            read_script(path[2], self._environment.absolute_path)
        # Tasks work in new folders: what is allowed in the folder that the batch was started in does not matter.
        folder = mkdtemp(prefix="pigeon-batch-", dir=self._environment.temporary_folder)
        try:
            options = structs.replace(options_of(spec, self._api_key), cwd=folder, no_session=True, session_dir=None)
            return await self._find_build_problem(options)
        finally:
            remove_folder(folder)

    async def _find_build_problem(self, options: AgentOptions) -> str | None:
        built = await build(options, self._environment)
        try:
            models = built.session.models
            model: Model | None = models.model
            if model is None:
                return models.problem or NO_MODEL
            if self._keys_are_here and model not in models.list_available():
                return models.problem or f"there is no API key for {model.reference}; see: pigeon doctor"
            return None
        finally:
            await built.lifecycle.close_extensions()
            await built.session.close()
            await built.lifecycle.stop()


def _folder_problem(folder: str) -> str | None:
    if not os.path.exists(folder):
        return f'"workspace.folder": there is no folder {folder}'
    return None if os.path.isdir(folder) else f'"workspace.folder": {folder} is not a folder'


def _schema_problem(schema: object) -> str | None:
    try:
        OutputSchema(schema)
    except Refusal as error:
        return f'"output": {str(error).removeprefix("outputSchema").lstrip(".: ")}'
    return None
