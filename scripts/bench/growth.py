"""How cost grows: with the history, the output of a command, the tools, the rules, the sessions of a folder, the
agents that an agent starts, and the conversations of a server."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import tool_server
from bench.connections import Agent, CodexServer, PigeonServe
from bench.headless import PROOF, RunFailed, Site
from bench.histories import fill_folder, samples_of, write_history
from bench.model_server import TEXT
from bench.peers import BY_NAME, PROMPT, write
from bench.rounds import Figures, interleave, try_each
from bench.rows import open_sites

# The curves of each agent: its title, then the size, then the figure.
Curves = dict[str, dict[int, float]]
Prepare = Callable[[Site, int], Callable[[], Figures]]


@dataclass(frozen=True)
class Growth:
    """One chart. `prepare` makes an agent ready for a size and returns what is measured."""

    title: str
    unit: str
    of: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    prepare: Prepare
    figure: str = "cpu"


def measure(growth: Growth, rounds: int, names: set[str]) -> Curves:
    """All curves of one chart."""
    found: Curves = {}
    for size in growth.sizes:
        with tempfile.TemporaryDirectory(prefix="pigeon-bench-") as place, ExitStack() as stack:
            peers = [BY_NAME[name] for name in growth.names if name in names]
            sites = open_sites(peers, Path(place), stack)
            works = try_each(sites, lambda title: growth.prepare(sites[title], size), growth.title)  # noqa: B023
            for title, figures in interleave(rounds, works, f"{growth.title} {size:,}").items():
                found.setdefault(title, {})[size] = figures[growth.figure]
    return found


def _continue_history(site: Site, size: int) -> Callable[[], Figures]:
    session, restore = write_history(site, size)

    def work() -> Figures:
        restore()
        return {"cpu": site.answer(site.peer.resume(session, PROMPT), samples_of(size)).cpu}

    return work


def _print_much(site: Site, size: int) -> Callable[[], Figures]:
    command = f"head -c {size}000 /dev/zero | tr '\\0' a | fold; echo done >> {PROOF}"
    return lambda: {"cpu": site.run_shell([command], 1).cpu}


def _have_tools(site: Site, size: int) -> Callable[[], Figures]:
    server = [sys.executable, tool_server.__file__, str(size), str(site.work / PROOF)]
    if not site.peer.add_tool_server(site.home, server):
        raise RunFailed("it has no tool servers")
    return lambda: {"cpu": site.run_calls([site.peer.server_call(f"tool_{size - 1}")], 1).cpu}


def _have_rules(site: Site, size: int) -> Callable[[], Figures]:
    rules = [f"bash(program{number} --option{number} *)" for number in range(size)]
    if site.peer.name == "claude":
        denied = [f"Bash(program{number} --option{number} *)" for number in range(size)]
        write(site.home / ".claude/settings.json", {"permissions": {"deny": denied}})
    else:
        write(site.home / ".pigeon/agent/settings.json", {"permissions": {"deny": rules}})
    return lambda: {"cpu": site.run_shell([f"echo done >> {PROOF}"], 1).cpu}


def _continue_in_folder(site: Site, size: int) -> Callable[[], Figures]:
    fill_folder(site, size)
    command = site.peer.command(PROMPT)
    return lambda: {"cpu": site.answer([*command[:-2], "--continue", *command[-2:]], [TEXT]).cpu}


def _start_agents(site: Site, size: int) -> Callable[[], Figures]:
    part = "the part of the work with the number"
    calls = [{"name": "task", "arguments": {"prompt": f"Do {part} {number}"}} for number in range(size)]

    def work() -> Figures:
        from bench.headless import measure as run

        site.model.play(replies=[{"calls": calls}], parts={f"Do {part}": {"text": TEXT}})
        cost = run([*site.peer.command(PROMPT), "--tools", "+task"], site)
        if len(site.model.requests()) != size + 2:
            raise RunFailed(f"{len(site.model.requests())} requests for {size} agents")
        return {"cpu": cost.cpu}

    return work


CHARTS = [
    Growth(
        "messages in the history",
        "s",
        "`-p` that continues",
        (10, 100, 1000, 10_000, 100_000),
        ("pigeon", "codex", "pi"),
        _continue_history,
    ),
    Growth(
        "KB of output of one command",
        "s",
        "`-p` with one call",
        (10, 100, 1000, 10_000, 100_000),
        ("pigeon", "codex", "pi", "tau", "claude"),
        _print_much,
    ),
    Growth(
        "tools of a tool server",
        "s",
        "`-p` with a call of the last one",
        (1, 10, 100, 1000),
        ("pigeon", "codex"),
        _have_tools,
    ),
    Growth("permission rules", "s", "`-p` with one call", (1, 10, 100, 1000), ("pigeon", "claude"), _have_rules),
    Growth(
        "sessions in the folder",
        "s",
        "`-p --continue`",
        (1, 10, 100, 1000, 10_000),
        ("pigeon", "pi"),
        _continue_in_folder,
    ),
    Growth("agents that an agent starts", "s", "`-p`", (1, 10, 30, 100), ("pigeon",), _start_agents),
]
SERVERS: dict[str, tuple[str, Callable[[Site], Agent]]] = {
    "Pigeon": ("pigeon", PigeonServe),
    "Pigeon `--shared 20`": ("pigeon", lambda site: PigeonServe(site, ["--shared", "20"])),
    "Codex": ("codex", CodexServer),
}
CONVERSATIONS = (1, 10, 30, 100)


def measure_conversations(rounds: int, names: set[str]) -> dict[str, Curves]:
    """Memory and CPU time of a server with so many conversations, each of which has answered a prompt."""
    memory: Curves = {}
    cpu: Curves = {}
    with tempfile.TemporaryDirectory(prefix="pigeon-bench-") as place, ExitStack() as stack:
        works = {}
        for number, (title, (name, make)) in enumerate(SERVERS.items()):
            if name in names and BY_NAME[name].is_installed():
                site = Site(BY_NAME[name], Path(place), f"{name}-{number}")
                stack.callback(site.close)
                works[title] = partial(_converse, make, site)
        for title, figures in interleave(rounds, works, "conversations").items():
            for size in CONVERSATIONS:
                memory.setdefault(title, {})[size] = figures[f"memory {size}"]
                cpu.setdefault(title, {})[size] = figures[f"cpu {size}"]
    return {"memory": memory, "cpu": cpu}


def _converse(make: Callable[[Site], Agent], site: Site) -> Figures:
    agent = make(site)
    figures = {}
    try:
        site.model.play()
        agent.start()
        for number in range(1, CONVERSATIONS[-1] + 1):
            agent.prompt(agent.open(), PROMPT).wait()
            if number in CONVERSATIONS:
                figures |= {f"memory {number}": agent.memory_mb(), f"cpu {number}": agent.cpu()}
    finally:
        agent.stop()
    return figures
