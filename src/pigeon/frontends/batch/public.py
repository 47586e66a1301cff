"""`pigeon.batch`: a batch of tasks from a program, as an iterator of results; `pigeon.batch_sync` for code without a
loop.

Nothing is printed. The folder has the same form as that of `pigeon batch`, so either can resume what the other started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pigeon.app.environment import environment_of_process
from pigeon.app.options import OF_ONE_SESSION
from pigeon.frontends.batch.batch_folder import Tally
from pigeon.frontends.batch.opened_batch import EngineChoice, OpenedBatch
from pigeon.frontends.batch.preparing import BatchRequest
from pigeon.frontends.batch.records import Check, TaskResult, TaskSpec, Workspace
from pigeon.frontends.batch.shared_limits import Rate
from pigeon.frontends.batch.task_files import MOST_TASKS, BatchDefaults, TaskSource
from pigeon.sdk.agent import AgentChoices, as_options
from pigeon.sdk.output import OutputType
from pigeon.sdk.sync import LoopThread
from pigeon.wire import codec
from pigeon.wire.errors import StartupError, UsageError
from pigeon.wire.steering import Limits, parse_limits

if TYPE_CHECKING:
    from typing import Unpack


class BatchChoices(AgentChoices, total=False):
    """The further options of a batch, and those of its agents.

    Attributes:
        prompt: a template for tasks without a prompt, with `{name}` for their other fields
        model: the model for tasks that name none
        workspace: the workspace for tasks that have none
        limits: the most that a task may use, unless it has its own limits
        output: a type or a JSON Schema that answers must fit
        check: the command that decides whether a task is done
        max_cost: the most that all tasks may cost together, in US dollars
        rates: what providers allow per minute, by their names; `*` stands for any other
        max_tasks: more tasks than this are refused, so that an iterable without an end is; by default a million
        concurrency: how many tasks run at a time; by default as many as fit
        engine: `local`, the default, or `ray`
        address: the address of a cluster, for `ray`
        keep: which workspaces to keep: `all`, the default, `failed` or `none`
        permissions: rules that tighten those of the user, as for `Agent`
        agent_dir: the folder of settings and keys; by default that of the user
    """

    prompt: str
    model: str
    workspace: Workspace
    limits: Limits
    output: Any
    check: str | Check
    max_cost: float
    rates: Mapping[str, Rate]
    max_tasks: int
    concurrency: int
    engine: str
    address: str
    keep: str
    permissions: str | Mapping[str, Any]
    agent_dir: str | os.PathLike[str]


async def batch(
    tasks: TaskSource | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str],
    resume: bool = False,
    retry_failed: bool = False,
    **choices: Unpack[BatchChoices],
) -> AsyncIterator[TaskResult]:
    """Run tasks, each with its own agent in its own workspace; yields the results as they come.

    All tasks are checked before the first one starts: a `StartupError` names every one that cannot be run. Leaving
    the iteration early stops what is running. `resume` continues a batch that was left or killed: finished results
    come first, and are not run again.

    Args:
        tasks: records, dictionaries or prompts, or the path of a file; `None` to continue those of the folder
        out: the folder for results
        resume: whether to continue the batch in that folder
        retry_failed: whether to continue, and to run again the tasks that are not done

    Example:
        import asyncio

        import pigeon


        async def main() -> None:
            tasks = [pigeon.Task(prompt="list the files", id="first")]
            async for result in pigeon.batch(tasks, out="results", model="demo"):
                print(result.id, result.status)


        if __name__ == "__main__":
            asyncio.run(main())
    """
    opened = await asyncio.to_thread(_open_batch, tasks, os.fspath(out), resume or retry_failed, choices)
    async for result in _run_and_yield_results(opened, retry_failed):
        yield result


def _open_batch(
    tasks: TaskSource | str | os.PathLike[str] | None, out: str, resume: bool, choices: BatchChoices
) -> OpenedBatch:
    """Checks the options and tasks; runs in a thread."""
    environment = environment_of_process()
    of_batch = {name: choices.get(name) for name in BatchChoices.__annotations__.keys() - AgentChoices.__annotations__}
    of_agents = {name: value for name, value in choices.items() if name not in of_batch}
    options = as_options(cast("AgentChoices", of_agents))
    if given := [name for name in OF_ONE_SESSION if name in options]:
        raise UsageError(f"{given[0]} applies to a single conversation, so it cannot be given to all of them")
    api_key = options.pop("api_key", None)
    folder = environment.agent_dir(os.fspath(choices["agent_dir"]) if "agent_dir" in choices else None)
    if "agent_dir" in choices:
        options["agent_dir"] = folder
    if "permissions" in choices:
        options["permissions"] = choices["permissions"]
    check, output, rates = choices.get("check"), choices.get("output"), choices.get("rates")
    address, engine = choices.get("address"), choices.get("engine")
    request = BatchRequest(
        out=environment.absolute_path(out),
        tasks=environment.absolute_path(os.fspath(tasks)) if isinstance(tasks, str | os.PathLike) else tasks,
        resume=resume,
        defaults=BatchDefaults(
            template=choices.get("prompt"),
            workspace=choices.get("workspace"),
            model=choices.get("model"),
            limits=codec.to_plain(parse_limits(choices.get("limits") or {})),
            output=None if output is None else OutputType(output).schema,
            check=Check(command=check) if isinstance(check, str) else check,
            options=options,
        ),
        max_cost=choices.get("max_cost"),
        rates=None if rates is None else dict(rates),
        keep=choices.get("keep"),
        engine=engine or (None if address is None else "ray"),
        api_key=api_key,
        max_tasks=choices.get("max_tasks", MOST_TASKS),
        keys_are_here=address is None,
    )
    choice = EngineChoice(engine=engine, address=address, concurrency=choices.get("concurrency"))
    return OpenedBatch(request, choice, environment, folder)


async def _run_and_yield_results(opened: OpenedBatch, retry_failed: bool) -> AsyncIterator[TaskResult]:
    """The results that were finished before, then the new ones as they come."""
    try:
        for spec in opened.folder.read_tasks():
            before = opened.folder.read_result(spec)
            if before is not None and not (retry_failed and before.status != "done"):
                yield before
        driver = opened.create_driver(_Unwatched())
        results = driver.run_tasks(retry_failed)
        try:
            async for result in results:
                yield result
        finally:
            await results.aclose()  # type: ignore[attr-defined]
        if driver.outcome.stopped and not driver.outcome.limited:
            raise StartupError(driver.outcome.stopped)
    finally:
        opened.close()


def batch_sync(tasks: TaskSource | str | os.PathLike[str] | None = None, **options: Any) -> Iterator[TaskResult]:
    """Run tasks and yield the results as they come, without an event loop; the options are those of `batch`.

    Args:
        tasks: records, dictionaries or prompts, or the path of a file; `None` to continue those of the folder
        options: the arguments of `batch`
    """
    thread = LoopThread()
    results = cast("Any", batch(tasks, **options))

    async def next_result_or_none() -> TaskResult | None:
        return cast("TaskResult | None", await anext(results, None))

    try:
        while (result := thread.run_and_wait(next_result_or_none())) is not None:
            yield result
    finally:
        thread.run_and_wait(results.aclose())
        thread.stop()


class _Unwatched:
    """A watcher that shows nothing: the caller gets the results."""

    def on_batch_began(self, tally: Tally, slots: int) -> None:
        """Ignored: the caller sees the results only."""

    def on_task_started(self, spec: TaskSpec) -> None:
        """Ignored: the caller sees the results only."""

    def on_task_ended(self, spec: TaskSpec, result: TaskResult | None, tally: Tally, spent: float) -> None:
        """Ignored: the driver yields the result itself."""

    def on_providers_paused(self, pauses: Mapping[str, float]) -> None:
        """Ignored: the caller sees the results only."""
