"""`pigeon batch`: many tasks, each by an agent of its own in a workspace of its own."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from pigeon.app.options import AgentOptions
from pigeon.frontends.agent_words import parse_agent_options, parse_whole_number
from pigeon.frontends.batch.batch_folder import RESULTS_FILE, BatchFolder
from pigeon.frontends.batch.opened_batch import ENGINES, KEEPS, EngineChoice, OpenedBatch
from pigeon.frontends.batch.preparing import BatchRequest
from pigeon.frontends.batch.progress import LiveProgress, LookupLines, PlainProgress, format_count, summarize_outcome
from pigeon.frontends.batch.records import CHECK_SECONDS, Check, Workspace
from pigeon.frontends.batch.report.writing import COMPARISON_FILE, REPORT_FILE, write_comparison, write_report
from pigeon.frontends.batch.shared_limits import Rate
from pigeon.frontends.batch.task_files import MOST_TASKS, BatchDefaults
from pigeon.frontends.call import CommandCall
from pigeon.frontends.printing import colour_system_of, print_line, print_to_stderr
from pigeon.frontends.prompt_input import read_schema
from pigeon.system.clock import SteadyLoop
from pigeon.system.collector import resume_collecting
from pigeon.system.extras import is_installed
from pigeon.system.files import read_text
from pigeon.transport import exit_codes
from pigeon.wire import codec
from pigeon.wire.errors import UsageError, text_for_host

if TYPE_CHECKING:
    from pigeon.frontends.batch.driver import Driver, Outcome

LARGEST_TEMPLATE = 16 * 1024 * 1024
# Options that a batch has its own members for, or that are never stored.
NOT_IN_SPECS = ("api_key", "model", "limits", "agent_dir", "unattended", "finish_gate")
# Options that become part of each task when the task file is read.
OF_TASKS = (
    *("prompt", "template", "format", "model", "folder", "git", "revision"),
    *("output_schema", "check", "check_seconds", "container", "container_engine"),
)
INTERRUPTED = "Interrupted: unfinished tasks will start over"


def run_batch(call: CommandCall) -> int:
    """Run tasks, or make a report; returns the exit code."""
    if call.has_option("compare") or call.has_option("report"):
        return _run_reports(call)
    words = list(call.words)
    tasks = words.pop(0) if words and not words[0].startswith("--") else None
    out = call.options.get("out")
    if (out is None and call.has_option("resume")) or (call.has_option("retry_failed") and out is None):
        out, tasks = tasks, None
    if out is None:
        raise UsageError("pigeon batch needs --out DIR, the folder for results. See: pigeon help batch")
    environment = call.environment
    agent = parse_agent_options(call, words)
    if tasks is None:
        _refuse_other_tasks(call, agent)
    agent_dir = environment.agent_dir(agent.agent_dir)
    choice = _parse_engine_choice(call)
    resume = call.has_option("resume") or call.has_option("retry_failed")
    if tasks is None and not resume:
        raise UsageError("pigeon batch needs TASKS, a file of tasks. See: pigeon help batch")
    request = BatchRequest(
        out=environment.absolute_path(out),
        tasks=tasks if tasks in (None, "-") else environment.absolute_path(tasks),
        format=_read_choice(call, "format", ("jsonl", "csv")),
        resume=resume,
        defaults=_parse_defaults(call, agent),
        title=call.options.get("title") or (None if tasks in (None, "-") or resume else os.path.basename(tasks)),
        max_cost=_parse_dollars(call.options.get("max_cost")),
        rates=_parse_rates(call),
        keep=_read_choice(call, "keep", KEEPS),
        engine=choice.engine,
        api_key=agent.api_key,
        max_tasks=parse_whole_number("max_tasks", call.options.get("max_tasks"), MOST_TASKS),
        keys_are_here=choice.address is None,
    )
    try:
        batch = OpenedBatch(request, choice, environment, agent_dir, LookupLines(print_to_stderr))
    except KeyboardInterrupt:
        print_to_stderr("Interrupted: nothing was started")
        raise
    try:
        return _run_batch(batch, call, out)
    finally:
        batch.close()


def _refuse_other_tasks(call: CommandCall, agent: AgentOptions) -> None:
    """Raise `UsageError` for options that would change the tasks of a resumed batch."""
    given = [f"--{name.replace('_', '-')}" for name in OF_TASKS if call.options.get(name) is not None]
    if _to_task_options(agent) or agent.model is not None or codec.to_plain(agent.limits):
        given.append("An option of agents")
    if given:
        raise UsageError(
            f"{given[0]} cannot be changed for tasks that are resumed as they are. "
            "Name the file of tasks as well: pigeon batch TASKS --out DIR --resume"
        )


def _run_batch(batch: OpenedBatch, call: CommandCall, out: str) -> int:
    changes = batch.prepared.changes
    if changes is not None and (changes.new or changes.gone):
        print_to_stderr(
            f"Unchanged: {format_count(changes.same)}. New: {changes.new:,}. Removed from the file: {changes.gone:,}."
        )
    at_terminal = (
        sys.stderr is not None and sys.stderr.isatty() and colour_system_of(call.environment.variables) is not None
    )
    progress: LiveProgress | PlainProgress
    # Without the extra `chat`, a terminal gets the same lines as a file.
    if at_terminal and is_installed("rich"):
        from rich.console import Console

        progress = LiveProgress(Console(stderr=True, highlight=False))
    else:
        progress = PlainProgress(sys.stderr)
    began = time.monotonic()
    # `main` switched the collector off: nothing created during the start is garbage. From here on there will be some.
    resume_collecting()

    async def run_driver() -> Driver:
        driver = batch.create_driver(progress)
        _watch_signals(driver)
        try:
            async for _ in driver.run_tasks(call.has_option("retry_failed")):
                pass
        finally:
            progress.close()
        return driver

    driver = SteadyLoop().run_until_complete(run_driver())
    outcome = driver.outcome
    for line in summarize_outcome(outcome, driver.spent, time.monotonic() - began):
        print_line(line)
    print_line(f"Results: {os.path.join(out, RESULTS_FILE)}")
    if not call.has_option("no_report"):
        _try_write_report(batch)
    if outcome.remaining_count or outcome.stopped or set(outcome.tally.by_status) - {"done"}:
        print_line(_suggest_next_command(outcome, out))
    return _choose_exit_code(outcome)


def _try_write_report(batch: OpenedBatch) -> None:
    """Write the report; if that fails, the results still count."""
    try:
        write_and_announce_report(batch.folder, names_missing=False)
    except Exception as error:
        print_to_stderr(f"Warning: the report could not be written: {text_for_host(error)}: {error}")


def _suggest_next_command(outcome: Outcome, out: str) -> str:
    more = " --max-cost MORE" if outcome.limited else ""
    if outcome.remaining_count or outcome.stopped:
        return f"Continue with: pigeon batch --resume {shlex.quote(out)}{more}"
    return f"Run the unsuccessful tasks again: pigeon batch --retry-failed {shlex.quote(out)}"


def _choose_exit_code(outcome: Outcome) -> int:
    states = outcome.tally.by_status
    if outcome.signal is not None:
        return exit_codes.BY_SIGNAL[signal.Signals(outcome.signal)]
    if outcome.limited:
        return exit_codes.LIMIT
    if outcome.remaining_count or outcome.stopped or states.get("failed") or states.get("error"):
        return exit_codes.FAILED
    return exit_codes.LIMIT if states.get("limit") else exit_codes.OK


def _watch_signals(driver: Driver) -> None:
    """The first signal ends the batch in order, the second at once."""
    loop = asyncio.get_running_loop()
    count = 0

    def on_signal(number: int) -> None:
        nonlocal count
        count += 1
        if count == 1:
            driver.stop(INTERRUPTED, signal=number)
            # The terminal may be gone, as after SIGHUP.
            with suppress(OSError):
                print_to_stderr("Stopping; interrupt again to stop immediately")
        else:
            driver.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)


# Reports


def _run_reports(call: CommandCall) -> int:
    """Write a page; returns the exit code."""
    words = [*call.words]
    environment = call.environment
    if call.has_option("report"):
        if len(words) != 1 or call.has_option("compare"):
            raise UsageError("To write the report of a batch: pigeon batch --report DIR")
        write_and_announce_report(BatchFolder(environment.absolute_path(words[0])))
        return exit_codes.OK
    if len(words) != 2:
        raise UsageError("To compare two batches: pigeon batch --compare DIR1 DIR2 [--out FILE]")
    folders = [BatchFolder(environment.absolute_path(word)) for word in words]
    for folder in folders:
        folder.read_record()
    asked = call.options.get("out")
    path = environment.absolute_path(asked) if asked else os.path.join(folders[1].path, COMPARISON_FILE)
    if os.path.isdir(path):
        path = os.path.join(path, COMPARISON_FILE)
    write_comparison(folders[0], folders[1], path)
    print_line(f"Comparison: {path}")
    return exit_codes.OK


def write_and_announce_report(folder: BatchFolder, *, names_missing: bool = True) -> None:
    """Write the report of a batch; prints where it is, and with `names_missing` what it lacks."""
    folder.read_record()
    problems = write_report(folder)
    for problem in problems if names_missing else ():
        print_to_stderr(f"Warning: {problem}")
    print_line(f"Report: {os.path.join(folder.path, REPORT_FILE)}")


# Options


def _parse_defaults(call: CommandCall, agent: AgentOptions) -> BatchDefaults:
    options = call.options
    workspace = None
    if options.get("folder") or options.get("git"):
        workspace = Workspace(folder=options.get("folder"), git=options.get("git"), revision=options.get("revision"))
    elif options.get("revision"):
        raise UsageError("--revision needs --git")
    return BatchDefaults(
        template=_read_template(call),
        workspace=workspace,
        model=options.get("model") or agent.model,
        limits=codec.to_plain(agent.limits),
        output=_read_schema(call),
        check=_read_check(call),
        options=_to_task_options(agent) | _read_container(call),
    )


def _read_container(call: CommandCall) -> dict[str, Any]:
    """The container of each task, as an option of its agent."""
    named = {name: call.options.get(name) for name in ("container", "container_engine")}
    if named["container_engine"] and not named["container"]:
        raise UsageError("--container-engine needs --container")
    return {name: value for name, value in named.items() if value}


def _to_task_options(agent: AgentOptions) -> dict[str, Any]:
    """The options of agents that are part of each task."""
    usual = AgentOptions()
    kept = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(agent).items()
        if name not in NOT_IN_SPECS and value != getattr(usual, name)
    }
    return {**kept, "unattended": True} if agent.unattended else kept


def _read_template(call: CommandCall) -> str | None:
    text, file = call.options.get("prompt"), call.options.get("template")
    if text is not None and file is not None:
        raise UsageError("use either --prompt or --template, not both")
    if file is None:
        return text
    try:
        return read_text(call.environment.absolute_path(file), LARGEST_TEMPLATE)
    except OSError as error:
        raise UsageError(f"--template {file}: {error.strerror or error}") from None


def _read_schema(call: CommandCall) -> dict[str, Any] | None:
    given = call.options.get("output_schema")
    return None if given is None else read_schema(given, call.environment)


def _read_check(call: CommandCall) -> Check | None:
    command, seconds = call.options.get("check"), call.options.get("check_seconds")
    if command is None:
        if seconds is not None:
            raise UsageError("--check-seconds needs --check")
        return None
    return Check(command=command, seconds=parse_whole_number("check_seconds", seconds, int(CHECK_SECONDS)))


def _parse_engine_choice(call: CommandCall) -> EngineChoice:
    options = call.options
    engine = _read_choice(call, "engine", ENGINES)
    if options.get("address") and engine is None:
        engine = "ray"
    if options.get("address") and engine != "ray":
        raise UsageError("--address needs --engine ray")
    concurrency = options.get("concurrency")
    found = None if concurrency is None else parse_whole_number("concurrency", concurrency, 1, 100_000)
    if found == 0:
        raise UsageError("--concurrency must be at least 1")
    return EngineChoice(
        engine=engine,
        address=options.get("address"),
        concurrency=found,
        pass_variables=tuple(options.get("pass_variable") or ()),
        cpus=_parse_number("cpus", options.get("cpus"), 1.0),
        resources={
            name: _parse_number("resource", value, 1.0)
            for name, _, value in (one.partition("=") for one in options.get("resource") or ())
        },
    )


def _parse_rates(call: CommandCall) -> dict[str, Rate] | None:
    """`--requests-per-minute anthropic=50`, or `50` for all providers."""
    found: dict[str, dict[str, float]] = {}
    for option, member in (("requests_per_minute", "requests"), ("tokens_per_minute", "tokens")):
        for given in call.options.get(option) or ():
            provider, _, value = given.rpartition("=")
            found.setdefault(provider or "*", {})[member] = _parse_number(option, value, 1.0)
    return {provider: Rate(**members) for provider, members in found.items()} or None


def _parse_dollars(given: str | None) -> float | None:
    return None if given is None else _parse_number("max_cost", given.removeprefix("$"), 0.0)


def _parse_number(option: str, given: str | None, default: float) -> float:
    if given is None:
        return default
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e12:
        raise UsageError(f'--{option.replace("_", "-")} must be a number greater than 0; got "{given}"')
    return value


def _read_choice(call: CommandCall, option: str, allowed: tuple[Any, ...]) -> Any:
    given = call.options.get(option)
    if given is not None and given not in allowed:
        raise UsageError(f'--{option} must be one of {", ".join(allowed)}; got "{given}"')
    return given
