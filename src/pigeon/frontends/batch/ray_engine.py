"""The engine `ray`: the same tasks on this machine or on a cluster, by Ray (extra `ray`).

Ray places tasks where there is room, starts workers, and retries what was lost with a worker or a machine. Tasks run as
with `local`: a Ray worker hosts one task at a time (`task_process.py`) in a separate process. The limits that all tasks
share are an actor on the driver's machine; workers forward the requests of their tasks to it.

A worker that sees the folder of the batch, because it is shared or on the same machine, has its task put the result
there. Elsewhere the result is made in a temporary folder and comes back as an archive through Ray's object store.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, structs

from pigeon.app.environment import environment_of_process
from pigeon.frontends.batch.batch_folder import BATCH_FILE
from pigeon.frontends.batch.engine import LocalLimits, count_fitting_slots
from pigeon.frontends.batch.places.workspaces import remove_folder
from pigeon.frontends.batch.records import TaskResult, TaskSpec
from pigeon.frontends.batch.shared_limits import Rate, SharedLimits
from pigeon.frontends.batch.task_link import FatalTask
from pigeon.frontends.batch.task_process import PART, TaskProcessDied, TaskProcesses, TaskRequest, decode_request
from pigeon.frontends.batch.task_run import (
    PATCH_FILE,
    RESULT_FILE,
    TASK_FILE,
    WORKSPACE,
    TaskPlace,
    commit_folder,
    put_result,
)
from pigeon.system.clock import SteadyLoop
from pigeon.system.extras import make_install_command
from pigeon.system.files import create_or_replace_file
from pigeon.wire import codec
from pigeon.wire.errors import PigeonError, StartupError

NO_RAY = "--engine ray needs Ray, which is not installed"
# How often Ray itself retries what was lost with a worker or a machine.
LOST_RETRIES = 20
# Twice as many tasks as fit are submitted, so that an autoscaling cluster sees the demand.
HANDED_OVER = 2
ASK_SECONDS = 5.0
LOOK_SECONDS = 1.0
# An actor that has not answered for this long is unreachable. Ray itself would wait for ever if a new cluster has
# replaced the one that was joined.
SILENCE_SECONDS = 60.0
LEAVE_SECONDS = 10.0
CONNECT_SECONDS = 10.0
# What a result may have when it comes back through the object store: worker and driver hold it in memory.
LARGEST_RESULT = 128 * 1024 * 1024
WORKSPACE_NOTE = f"{WORKSPACE}.txt"


class RayPlace(Struct, frozen=True, kw_only=True):
    """Which cluster, and what a task takes of it; without an address Ray is started here."""

    address: str | None = None
    variables: dict[str, str] = {}
    cpus: float = 1.0
    resources: dict[str, float] = {}


class RemoteOutcome(Struct, frozen=True, kw_only=True):
    """What a worker sends back: a result, with its folder as an archive where that is not shared, or the reason for
    having none."""

    result: TaskResult | None = None
    files: bytes | None = None
    died: str | None = None
    innocent: bool = False
    fatal: str | None = None


class LimitsActor(LocalLimits):
    """`SharedLimits` as an actor. Ray restarts it if its process dies; the driver then restores what was spent."""

    def __init__(self, rates: Mapping[str, Rate], max_cost: float | None, spent: float) -> None:
        super().__init__(SharedLimits(rates, max_cost, spent))

    async def reserve_money(self, task: str, share: float) -> bool:
        return self._limits.reserve_money(task, share)

    async def release_money(self, task: str) -> float:
        return self._limits.release_money(task)

    async def find_provider_pauses(self) -> dict[str, float]:
        return self._limits.find_provider_pauses()

    async def update_total_cost(self, at_least: float) -> tuple[float, bool]:
        """Raise the total to what the driver knows; returns the total and whether the money is used up."""
        self._limits.raise_total_cost(at_least)
        return self._limits.total_cost, self._limits.is_exhausted


class ActorLimits:
    """The limits of tasks whose host is a worker of Ray."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def reserve_turn(self, provider: str, tokens: int) -> float:
        return float(await self._actor.reserve_turn.remote(provider, tokens))

    async def remaining_wait(self, provider: str) -> float:
        """The seconds that a request still has to wait."""
        return float(await self._actor.remaining_wait.remote(provider))

    async def record_request_end(
        self, provider: str, more_tokens: int, is_refused: bool, seconds: float | None
    ) -> None:
        await self._actor.record_request_end.remote(provider, more_tokens, is_refused, seconds)

    async def spend_and_check_exhausted(self, task: str, dollars: float) -> bool:
        return bool(await self._actor.spend_and_check_exhausted.remote(task, dollars))


def check_cluster_listens(address: str) -> None:
    """Raise `OSError` if nothing listens at an address with host and port: Ray tries for minutes without a word."""
    host, found, port = address.removeprefix("ray://").rpartition(":")
    if found and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise OSError(f"no cluster answers at {address}: {getattr(error, 'strerror', None) or error}") from None


class RayEngine:
    """Submits tasks to Ray and collects their results."""

    def __init__(
        self,
        place: TaskPlace,
        cluster: RayPlace,
        concurrency: int | None,
        rates: Mapping[str, Rate],
        max_cost: float | None,
        spent: float,
        exhausted: Callable[[], None],
    ) -> None:
        self._place = structs.replace(place, variables={})
        self._cluster = cluster
        self._concurrency = concurrency
        self._limits = dict(rates), max_cost, spent
        self._spent = spent
        self._exhausted = exhausted
        self._ray: Any = None
        self._actor: Any = None
        self._remote: Any = None
        self._running: dict[str, tuple[Any, Future[TaskResult | None]]] = {}
        self._is_lost = False
        self._failing_since: float | None = None
        self._slots = 0
        self._asked = 0.0
        self._looking: asyncio.Task[None] | None = None

    @property
    def max_handed_over(self) -> int:
        """As many as requested, else twice as many as fit on the cluster at the moment."""
        if self._concurrency is not None:
            return self._concurrency
        if time.monotonic() - self._asked > ASK_SECONDS:
            self._asked = time.monotonic()
            cpus = float(self._ray.cluster_resources().get("CPU", 1))
            self._slots = max(1, int(HANDED_OVER * cpus / self._cluster.cpus))
        return self._slots

    async def open(self) -> None:
        """Start Ray or join the cluster, and start the actor; raises `StartupError`."""
        try:
            import ray
        except ModuleNotFoundError:
            raise StartupError(f"{NO_RAY}: {make_install_command('ray')}") from None
        self._ray = ray
        try:
            await asyncio.to_thread(self._join_cluster)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise StartupError(describe_ray_failure(error)) from None
        cluster = self._cluster
        self._remote = ray.remote(run_remotely).options(
            num_cpus=cluster.cpus,
            resources=dict(cluster.resources) or None,
            max_retries=LOST_RETRIES,
            scheduling_strategy="SPREAD",
        )
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), False
        )
        self._actor = (
            ray.remote(LimitsActor)
            .options(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)
            .remote(*self._limits)
        )
        self._looking = asyncio.ensure_future(self._watch_cluster())

    def _join_cluster(self) -> None:
        """Join or start the cluster; blocks, so it runs in a thread."""
        given: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self._cluster.address is not None:
            check_cluster_listens(self._cluster.address)
            self._ray.init(address=self._cluster.address, **given)
            return
        slots = self._concurrency or count_fitting_slots()
        self._ray.init(num_cpus=max(1, int(slots * self._cluster.cpus)), include_dashboard=False, **given)

    def submit(self, spec: TaskSpec) -> Future[TaskResult | None]:
        future: Future[TaskResult | None] = Future()
        future.set_running_or_notify_cancel()
        request = codec.encode(TaskRequest(spec=spec, place=self._place))
        if self._is_lost:
            future.set_exception(FatalTask("Ray is out of reach"))
            return future
        try:
            reference = self._remote.remote(request, self._cluster.variables, self._actor)
        except Exception as error:
            future.set_exception(FatalTask(f"Ray no longer accepts tasks: {error}"))
            return future
        self._running[spec.id] = reference, future
        remote: Future[bytes] = reference.future()
        remote.add_done_callback(lambda done: self._on_task_done(spec, done, future))
        return future

    def _on_task_done(self, spec: TaskSpec, done: Future[bytes], future: Future[TaskResult | None]) -> None:
        """Handle what a worker has sent; called in a thread of Ray."""
        if self._running.pop(spec.id, None) is None:
            return
        try:
            future.set_result(self._unpack_outcome(done))
        except Exception as error:
            future.set_exception(error)

    def _unpack_outcome(self, done: Future[bytes]) -> TaskResult | None:
        try:
            data = done.result()
        except self._ray.exceptions.TaskCancelledError:
            return None
        except self._ray.exceptions.LocalRayletDiedError:
            # Nothing can be run from here any more; a new driver starts Ray again or rejoins the cluster.
            raise FatalTask("Ray has died on the driver's machine") from None
        except self._ray.exceptions.RayTaskError as error:
            raise TaskProcessDied(f"The worker failed: {error.cause or error}", True) from None
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()
            raise TaskProcessDied(f"Ray lost the worker: {first[0] if first else error}", True) from None
        outcome = msgspec.msgpack.decode(data, type=RemoteOutcome)
        if outcome.fatal is not None:
            raise FatalTask(outcome.fatal)
        if outcome.died is not None:
            raise TaskProcessDied(outcome.died, outcome.innocent)
        if outcome.result is not None and outcome.files is not None:
            return unpack_result(outcome.files, self._place.out, outcome.result)
        return outcome.result

    async def _watch_cluster(self) -> None:
        """Check regularly what was spent, and whether the cluster is still reachable."""
        while not self._is_lost:
            await asyncio.sleep(LOOK_SECONDS)
            answer = await self._call_actor("update_total_cost", self._spent)
            if answer is not None:
                self._spent, is_all = answer
                if is_all:
                    self._exhausted()

    async def _call_actor(self, method: str, *arguments: object) -> Any:
        """Returns the actor's answer, or None if it cannot be reached."""
        if self._is_lost:
            return None

        async def call_method() -> Any:
            return await getattr(self._actor, method).remote(*arguments)

        try:
            answer = await asyncio.wait_for(call_method(), SILENCE_SECONDS)
        except TimeoutError:
            self._fail_all_tasks()
            return None
        except self._ray.exceptions.RayError:
            # Ray may have died here. The next submitted task finds out and ends the batch in order; tasks that were
            # submitted before would wait for ever.
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since > SILENCE_SECONDS:
                self._fail_all_tasks()
            return None
        self._failing_since = None
        return answer

    def _fail_all_tasks(self) -> None:
        """The cluster is unreachable: fail all submitted tasks."""
        self._is_lost = True
        for id in list(self._running):
            _, future = self._running.pop(id)
            future.set_exception(FatalTask(f"Ray has not answered for {SILENCE_SECONDS:g} s"))

    async def reserve_money(self, task: str, share: float) -> bool:
        kept = await self._call_actor("reserve_money", task, share)
        return True if kept is None else bool(kept)

    async def release_money(self, task: str) -> float:
        return float(await self._call_actor("release_money", task) or 0.0)

    async def get_total_cost(self) -> float:
        answer = await self._call_actor("update_total_cost", self._spent)
        if answer is not None:
            self._spent, _ = answer
        return self._spent

    async def find_provider_pauses(self) -> dict[str, float]:
        return dict(await self._call_actor("find_provider_pauses") or {})

    async def stop(self, reason: str) -> None:
        for reference, _ in list(self._running.values()):
            self._ray.cancel(reference, force=True)

    def kill(self) -> None:
        """Leave the cluster; what was started here ends with it."""
        if self._looking is not None:
            self._looking.cancel()
        if self._ray is not None and self._ray.is_initialized():
            for reference, _ in list(self._running.values()):
                with suppress(Exception):
                    self._ray.cancel(reference, force=True)
            leaving = threading.Thread(target=self._ray.shutdown, daemon=True)
            leaving.start()
            leaving.join(LEAVE_SECONDS if self._is_lost else None)


def describe_ray_failure(error: Exception) -> str:
    """Why Ray cannot be used, with a remedy that is known."""
    text = f"Ray cannot be used: {str(error).strip()}"
    if "AF_UNIX path" not in text:
        return text
    return f"{text}. Its sockets are in the folder for temporary files; name a shorter one with RAY_TMPDIR=/tmp"


# What runs in workers


class _WorkerState:
    """What a worker keeps between tasks: its event loop, and the warm parent of task processes."""

    def __init__(self, actor: Any, variables: Mapping[str, str]) -> None:
        self.loop = SteadyLoop()
        self.processes = TaskProcesses(variables, ActorLimits(actor))


_state: _WorkerState | None = None


def run_remotely(request: bytes, passed: dict[str, str], actor: Any) -> bytes:
    """Run a task in a Ray worker, in a separate process."""
    global _state
    environment = environment_of_process()
    variables = {**environment.variables, **passed}
    if _state is None:
        _state = _WorkerState(actor, variables)
    wanted = decode_request(request)
    place = wanted.place
    here = place.agent_dir if os.path.isdir(place.agent_dir) else environment.agent_dir()
    place = structs.replace(
        place, variables=variables, agent_dir=here, cache=os.path.join(here, os.path.basename(place.cache))
    )
    if can_see_batch_folder(place):
        outcome = _run(_state, wanted.spec, place)
    else:
        folder = tempfile.mkdtemp(prefix="pigeon-batch-", dir=environment.temporary_folder)
        try:
            outcome = _run(_state, wanted.spec, structs.replace(place, out=folder))
            if outcome.result is not None:
                result, files = pack_result(folder, outcome.result, wanted.spec, LARGEST_RESULT)
                outcome = RemoteOutcome(result=result, files=files)
        finally:
            remove_folder(folder)
    return msgspec.msgpack.encode(outcome)


def _run(state: _WorkerState, spec: TaskSpec, place: TaskPlace) -> RemoteOutcome:
    async def stop_processes() -> None:
        await state.processes.stop("all is spent")

    async def run_task() -> TaskResult | None:
        return await state.processes.run(spec, place, stop_processes)

    try:
        return RemoteOutcome(result=state.loop.run_until_complete(run_task()))
    except TaskProcessDied as error:
        return RemoteOutcome(died=str(error), innocent=error.innocent)
    except FatalTask as error:
        return RemoteOutcome(fatal=str(error))


def can_see_batch_folder(place: TaskPlace) -> bool:
    """Whether the folder of the batch is visible here; it may also be another folder of the same name."""
    with suppress(OSError), open(os.path.join(place.out, BATCH_FILE), "rb") as file:
        return place.batch.encode() in file.read()
    return False


class ResultTooLarge(PigeonError):
    """A result is too large for the object store."""


class _BoundedArchive(io.BytesIO):
    """Accepts a limited number of bytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._most:
            raise ResultTooLarge
        return super().write(data)


def pack_result(out: str, result: TaskResult, spec: TaskSpec, most: int) -> tuple[TaskResult, bytes]:
    """The folder of a result as an archive of at most so many bytes.

    A workspace that is too large is replaced by a note, because its changes are also in the patch. If there is no
    patch, or the rest is still too large, the task becomes an error: only the result with its cost comes back, and the
    batch continues.
    """
    folder = os.path.join(out, result.folder)
    with suppress(ResultTooLarge):
        return result, _pack_folder(folder, most, ())
    reason = (
        f"is larger than {most // 1024**2} MB, too large for Ray's object store. "
        "Use an --out folder that all machines share"
    )
    if os.path.exists(os.path.join(folder, WORKSPACE)):
        note = f"The workspace was left out: it {reason}, or --keep none\n"
        create_or_replace_file(os.path.join(folder, WORKSPACE_NOTE), note.encode(), 0o600)
        if not os.path.exists(os.path.join(folder, PATCH_FILE)):
            result = structs.replace(result, status="error", error=f"The workspace {reason}, or --keep none")
            put_result(folder, spec, codec.encode(result))
        with suppress(ResultTooLarge):
            return result, _pack_folder(folder, most, (WORKSPACE,))
    result = structs.replace(result, status="error", error=f"The conversation {reason}", session=None)
    put_result(folder, spec, codec.encode(result))
    kept = (RESULT_FILE, TASK_FILE, WORKSPACE_NOTE)
    return result, _pack_folder(folder, most, tuple(name for name in os.listdir(folder) if name not in kept))


def _pack_folder(folder: str, most: int, left_out: tuple[str, ...]) -> bytes:
    packed = _BoundedArchive(most)
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name in sorted(os.listdir(folder)):
            if name not in left_out:
                archive.add(os.path.join(folder, name), name)
    return packed.getvalue()


def unpack_result(files: bytes, out: str, result: TaskResult) -> TaskResult:
    """Unpack the folder of a result in the batch's folder."""
    part = os.path.join(out, f"{PART}{result.folder}-{os.urandom(4).hex()}")
    os.mkdir(part, 0o700)
    try:
        with tarfile.open(fileobj=io.BytesIO(files), mode="r:gz") as archive:
            # The archive is our own; a workspace may contain links to anywhere, which newer Python versions refuse.
            trusted: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(part, **trusted)
        return commit_folder(part, os.path.join(out, result.folder), result)
    finally:
        with suppress(OSError):
            remove_folder(part)
