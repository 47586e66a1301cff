"""A batch that is ready to run: its folder is locked, its tasks are checked, its engine is chosen.

The command line and `pigeon.batch` both begin here.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct, structs

from pigeon.frontends.batch.batch_folder import BatchFolder
from pigeon.frontends.batch.driver import BatchWatcher, Driver
from pigeon.frontends.batch.engine import LocalEngine, TaskEngine, count_fitting_slots
from pigeon.frontends.batch.places.revisions import LookupWatch
from pigeon.frontends.batch.places.workspaces import git_variables
from pigeon.frontends.batch.preparing import BatchRequest, Prepared, prepare_batch
from pigeon.frontends.batch.shared_limits import SharedLimits
from pigeon.frontends.batch.task_run import TaskPlace
from pigeon.system.environment import Environment
from pigeon.wire.errors import StartupError, UsageError

ENGINES = ("local", "ray")
KEEPS = ("all", "failed", "none")
CACHE = "batch-repositories"


class EngineChoice(Struct, frozen=True, kw_only=True):
    """Where tasks run.

    `address` is that of a Ray cluster, and `pass_variables` are copied from here to its machines. A task takes `cpus`
    and the named `resources` of a cluster machine.
    """

    engine: str | None = None
    address: str | None = None
    concurrency: int | None = None
    pass_variables: tuple[str, ...] = ()
    cpus: float = 1.0
    resources: dict[str, float] = {}


class OpenedBatch:
    """One batch from its request to its end; `close` releases the folder."""

    def __init__(
        self,
        request: BatchRequest,
        choice: EngineChoice,
        environment: Environment,
        agent_dir: str,
        watch: LookupWatch = lambda _found, _total: None,
    ) -> None:
        """Check everything; raises `UsageError` and `StartupError`. Must not run in the thread of an event loop.

        `watch` follows the look-up of repositories, which may take minutes.
        """
        self._request = request
        self._choice = choice
        self._environment = environment
        self._agent_dir = agent_dir
        self._cache = os.path.join(agent_dir, CACHE)
        self.folder = BatchFolder(request.out)
        if request.tasks is None and not self.folder.exists:
            raise UsageError(f"{request.out} has no batch to resume")
        existed = os.path.isdir(request.out)
        self.folder.lock()
        try:
            looking = structs.replace(environment, variables=git_variables(environment, agent_dir))
            self.prepared: Prepared = prepare_batch(request, self.folder, looking, self._cache, watch)
            self.engine_name = self.prepared.record.engine
            if self.engine_name not in ENGINES:
                raise UsageError(f'There is no engine "{self.engine_name}"; there are {" and ".join(ENGINES)}')
        except BaseException as error:
            self.folder.close()
            if not existed:
                self.folder.remove_if_empty()
            if isinstance(error, OSError):
                raise StartupError(f"--out {request.out}: {error.strerror or error}") from None
            raise

    def create_driver(self, watcher: BatchWatcher) -> Driver:
        """The driver that runs the batch."""
        return Driver(self.folder, self.prepared.record, self._create_engine, watcher)

    def close(self) -> None:
        self.folder.close()

    def _create_engine(self, spent: float, exhausted: Callable[[], None]) -> TaskEngine:
        record, choice, environment = self.prepared.record, self._choice, self._environment
        place = TaskPlace(
            batch=record.id,
            out=self.folder.path,
            part="",
            cache=self._cache,
            agent_dir=self._agent_dir,
            cwd=environment.cwd,
            variables=dict(environment.variables),
            keep=record.keep,
            api_key=self._request.api_key,
        )
        if self.engine_name == "ray":
            from pigeon.frontends.batch.ray_engine import RayEngine, RayPlace

            missing = [name for name in choice.pass_variables if name not in environment.variables]
            if missing:
                raise UsageError(f"--pass-variable {missing[0]}: there is no such variable")
            passed = {name: environment.variables[name] for name in choice.pass_variables}
            cluster = RayPlace(address=choice.address, variables=passed, cpus=choice.cpus, resources=choice.resources)
            return RayEngine(place, cluster, choice.concurrency, record.rates, record.max_cost, spent, exhausted)
        slots = choice.concurrency or count_fitting_slots()
        return LocalEngine(place, slots, SharedLimits(record.rates, record.max_cost, spent), exhausted)
