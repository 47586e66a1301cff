"""The command `pigeon batch`; what carries it out is imported when it is called."""

from __future__ import annotations

from pigeon.frontends.call import Action, CommandCall, CommandDeclaration


def _run_batch(call: CommandCall) -> int:
    from pigeon.frontends.batch.command import run_batch

    return run_batch(call)


BATCH = CommandDeclaration(
    name="batch",
    summary="run many tasks, each in a fresh workspace, and write a report",
    run=_run_batch,
    actions=(Action("", ("[TASKS]", "[-- OPTIONS...]"), "run the tasks in a file; OPTIONS apply to every agent"),),
    options=(
        ("--out", "DIR", "the folder for results; TASKS is JSON Lines or CSV, or - for stdin"),
        ("--resume", "", "continue the batch in DIR: pigeon batch --resume DIR"),
        ("--retry-failed", "", "the same, and run the unsuccessful tasks again"),
        ("--prompt", "TEXT", "prompt template for tasks that have none: {name} is a field or column of the task"),
        ("--template", "FILE", "the same from a file"),
        ("--format", "FORMAT", "jsonl or csv, if the file name does not say"),
        ("--model", "PATTERN", "the model for tasks that name none"),
        ("--folder", "DIR", "workspace for tasks that name none: a fresh copy of this folder"),
        ("--git", "URL", "the same: a fresh checkout of this repository"),
        ("--revision", "REVISION", "with --git: the branch, tag or commit"),
        ("--output-schema", "FILE|JSON", "answers must match this JSON Schema"),
        ("--container", "IMAGE", "work in a container of this image, one for each task, with its workspace mounted"),
        ("--container-engine", "ENGINE", "podman or docker (default: podman if it is installed, else docker)"),
        ("--check", "COMMAND", "run this in the workspace afterwards; the task succeeds if it exits with 0"),
        ("--check-seconds", "N", "time limit of a check (default: 600)"),
        ("--keep", "WHICH", "which workspaces to keep: all (the default), failed or none"),
        ("--concurrency", "N", "run N tasks at a time (default: as many as fit)"),
        ("--max-cost", "DOLLARS", "cost limit for all tasks together"),
        ("--max-tasks", "N", "refuse a file with more tasks than this (default: 1000000)"),
        ("--requests-per-minute", "[PROVIDER=]N...", "requests per minute for all tasks together"),
        ("--tokens-per-minute", "[PROVIDER=]N...", "tokens per minute for all tasks together"),
        ("--engine", "ENGINE", "local (the default) or ray"),
        ("--address", "ADDRESS", "with ray: the cluster; without it, Ray is started on this machine"),
        ("--cpus", "N", "with ray: CPUs that each task needs (default: 1)"),
        ("--resource", "NAME=N...", "with ray: another resource that each task needs"),
        ("--pass-variable", "NAME...", "with ray: pass this environment variable to the machines of the cluster"),
        ("--title", "TEXT", "the title of the report"),
        ("--no-report", "", "do not write a report at the end"),
        ("--report", "", "rewrite the report of the batch in DIR: pigeon batch --report DIR"),
        ("--compare", "", "compare two batches: pigeon batch --compare DIR1 DIR2 [--out FILE]"),
    ),
    examples=(
        ("pigeon batch tasks.jsonl --out results", "run the tasks; the exit code is 0 if all succeed"),
        ('pigeon batch repos.csv --out r --prompt "Upgrade {package}" --check "make test"', "one task per row"),
        ("pigeon batch --resume results", "continue after an interruption"),
        (
            "pigeon batch tasks.jsonl --out r --max-cost 20 -- --max-turns 30 --thinking low",
            "a cost limit, and options for the agents",
        ),
        ("pigeon batch --compare before after", "compare two batches"),
    ),
)
