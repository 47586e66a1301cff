"""The tables: one answer from the command line, agents that stay, agents in one process, the size on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import in_process
from bench.connections import KINDS, Agent, WarmPigeon, cool_down, cpu_seconds, peer_of, warm_parent, warm_up
from bench.headless import PROOF, RunFailed, Site, measure
from bench.install import ROOT
from bench.model_server import TEXT
from bench.peers import ALL, BY_NAME, PROMPT, Peer
from bench.rounds import Figures, interleave, report, try_each

CALLS = 10
PROMPTS = 10
PIECES = 10_000
WARM = "Pigeon after `pigeon warm`"
LIBRARIES = {"pigeon": "Pigeon", "tau": "tau", "openai-agents": "OpenAI Agents SDK", "pydantic-ai": "Pydantic AI"}
Table = dict[str, Figures]


def shell_commands(count: int) -> list[str]:
    """Each another one: several agents stop a model that repeats itself."""
    return [f"echo {number} >> {PROOF}" for number in range(count)]


def open_sites(peers: list[Peer], folder: Path, stack: ExitStack) -> dict[str, Site]:
    """A site for each agent that is installed, by its title."""
    installed = {peer.title: peer for peer in peers if peer.is_installed()}
    sites = try_each(installed, lambda title: Site(installed[title], folder), "settings")
    for site in sites.values():
        stack.callback(site.close)
    return sites


def measure_answers(rounds: int, names: set[str]) -> Table:
    """One answer without a tool and one with ten shell calls; memory in rounds of its own."""
    with tempfile.TemporaryDirectory(prefix="pigeon-bench-") as place, ExitStack() as stack:
        chosen = [peer for peer in ALL if peer.name in names]
        sites = open_sites(chosen, Path(place), stack)
        plain: dict[str, Callable[[], Figures]] = {name: partial(_answer, site) for name, site in sites.items()}
        if "pigeon" in names:
            warm = WarmAnswers(Site(BY_NAME["pigeon"], Path(place), "warm"))
            stack.callback(warm.close)
            plain[WARM] = warm.answer
        found = interleave(rounds, plain, "one answer")
        if "pigeon" in names and WARM in found:
            found[WARM]["cpu"] += warm.parent_cpu()
        handy = {name: site for name, site in sites.items() if name in found and site.peer.name != "aider"}
        tools = interleave(rounds, {name: partial(_call_tools, site) for name, site in handy.items()}, "ten calls")
        memory = interleave(min(rounds, 2), {name: partial(_sample, site) for name, site in handy.items()}, "memory")
        for table in (tools, memory):
            for name, figures in table.items():
                found[name] |= figures
        return found


def _answer(site: Site) -> Figures:
    cost = site.answer()
    return {"cpu": cost.cpu, "wall": cost.wall}


def _call_tools(site: Site) -> Figures:
    return {"tools_cpu": site.run_shell(shell_commands(CALLS), CALLS).cpu}


def _sample(site: Site) -> Figures:
    return {"peak_mb": site.run_shell(shell_commands(CALLS), CALLS, with_memory=True).peak_mb}


class WarmAnswers:
    """Answers of callers with a warm parent. What the parent and its processes use is known in ticks only, so it is
    taken for all of them together."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._answers = 0
        self._before = 0.0
        warm_up(site)
        self._parent = warm_parent(site)

    def answer(self) -> Figures:
        if self._answers == 1:
            self._before = cpu_seconds([self._parent])
        self._answers += 1
        self._site.model.play()
        cost = measure(self._site.peer.command(PROMPT), self._site)
        return {"cpu": cost.cpu, "wall": cost.wall}

    def parent_cpu(self) -> float:
        """For each answer but the first."""
        return (cpu_seconds([self._parent]) - self._before) / max(1, self._answers - 1)

    def close(self) -> None:
        cool_down(self._site)
        self._site.close()


def measure_staying(rounds: int, names: set[str]) -> Table:
    """Start, first answer, short prompts and a long answer of agents that stay; each round starts them anew."""
    with tempfile.TemporaryDirectory(prefix="pigeon-bench-") as place, ExitStack() as stack:
        works: dict[str, Callable[[], Figures]] = {}
        for number, kind in enumerate(KINDS):
            peer = peer_of(kind)
            if peer.name in names and peer.is_installed():
                site = Site(peer, Path(place), f"{peer.name}-{number}")
                stack.callback(site.close)
                if KINDS[kind][1] is WarmPigeon:
                    stack.callback(cool_down, site)
                works[kind] = partial(_stay, kind, site)
        return interleave(rounds, works, "staying")


def _stay(kind: str, site: Site) -> Figures:
    agent = KINDS[kind][1](site)
    try:
        site.model.play()
        agent.start()
        conversation = agent.open()
        figures = {"ready_cpu": agent.cpu()}
        if agent.prompt(conversation, PROMPT).wait().characters < len(TEXT):
            raise RunFailed("the answer is not complete")
        figures |= {"answer_cpu": agent.cpu(), "memory_mb": agent.memory_mb()}
        agent.wait_until_quiet()
        return figures | _prompt_often(agent, conversation) | _stream(agent, conversation)
    finally:
        agent.stop()


def _prompt_often(agent: Agent, conversation: object) -> Figures:
    before = agent.cpu()
    turns = [agent.prompt(conversation, f"{PROMPT} {number}").wait() for number in range(PROMPTS)]
    first = sorted(turn.first_seconds for turn in turns)[PROMPTS // 2]
    return {"prompt_cpu": (agent.cpu() - before) / PROMPTS, "first": first}


def _stream(agent: Agent, conversation: object) -> Figures:
    agent.site.model.play(last={"text": "12345678" * PIECES, "pieces": PIECES})
    before = agent.cpu()
    turn = agent.prompt(conversation, "at length, please").wait()
    if turn.characters != 8 * PIECES:
        report(f"{agent.site.name}: {turn.characters} of {8 * PIECES} characters arrived")
        return {"stream_cpu": float("nan")}
    return {"stream_cpu": agent.cpu() - before}


def measure_libraries(rounds: int, names: set[str]) -> Table:
    """One more agent in a process that has some."""
    with tempfile.TemporaryDirectory(prefix="pigeon-bench-") as place:
        site = Site(BY_NAME["pigeon"], Path(place))
        try:
            works = {}
            for name, title in LIBRARIES.items():
                python = sys.executable if name == "pigeon" else str(ROOT / name / "bin" / "python")
                if name in names and os.path.exists(python):
                    works[title] = partial(_one_more, site, python, name)
            return interleave(rounds, works, "in process")
        finally:
            site.close()


def _one_more(site: Site, python: str, library: str) -> Figures:
    site.model.play()
    command = [python, in_process.__file__, library, f"{site.model.url}/v1"]
    variables = {**site.variables, "OPENAI_API_KEY": "x"}
    done = subprocess.run(
        command, env=variables, cwd=site.work, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise RunFailed(done.stderr[-300:])
    found: Figures = json.loads(done.stdout)
    return found


def measure_sizes(rounds: int, names: set[str]) -> Table:
    """What an installation takes on the disk, with all that it needs and with byte code."""
    import release_check

    found = {}
    for peer in ALL:
        # pi is installed without its dependencies.
        if peer.name not in names or peer.name == "pi" or not peer.is_installed():
            continue
        if peer.name == "pigeon":
            with tempfile.TemporaryDirectory(prefix="pigeon-bench-") as place:
                size = _measure_own_wheel(Path(place))
        else:
            size = release_check.measure_disk_use(ROOT / peer.name)
            # Environments of Python have an installer, which nobody needs afterwards.
            for part in (ROOT / peer.name).glob("lib/python*/site-packages/*"):
                if part.name.partition("-")[0] in ("pip", "setuptools", "pkg_resources", "_distutils_hack"):
                    size -= release_check.measure_disk_use(part)
        found[peer.title] = {"mb": size / (1 << 20)}
    return found


def _measure_own_wheel(folder: Path) -> int:
    """The growth of an empty environment by this checkout; what it needs is linked from where it is installed."""
    import release_check

    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    before = release_check.measure_disk_use(venv)
    release_check.unpack_wheel(release_check.build_files(folder)[-1], venv)
    subprocess.run([f"{venv}/bin/python", "-m", "compileall", "-q", str(venv)], check=True)
    return release_check.measure_disk_use(venv) - before
