"""`make bench` on Pigeon alone: what it measures is verified, and the page is what its figures say."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench import __main__ as program
from bench import charts, growth, headless, page
from bench.connections import RpcAgent
from bench.headless import PROOF, RunFailed, Site
from bench.histories import fill_folder, samples_of, write_history
from bench.install import PACKAGES, VERSIONS
from bench.model_server import TEXT
from bench.peers import ALL, BY_NAME, PROMPT, Peer, Pigeon, write
from bench.rounds import interleave, try_each


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(BY_NAME["pigeon"], tmp_path)
    yield made
    made.close()


def test_one_answer_is_measured(site: Site) -> None:
    cost = site.answer()
    assert 0.01 < cost.cpu < 60
    assert cost.wall > 0
    assert [request["tools"] > 0 for request in site.model.requests()] == [True]


def test_calls_are_made_and_memory_is_seen(site: Site) -> None:
    cost = site.run_shell([f"echo {number} >> {PROOF}" for number in range(2)], 2, with_memory=True)
    assert cost.peak_mb > 5
    assert len(site.model.requests()) == 3


@pytest.mark.parametrize(
    "api", ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
)
def test_the_model_speaks_every_api(site: Site, api: str) -> None:
    models = site.home / ".pigeon/agent/models.json"
    settings = json.loads(models.read_text())
    settings["providers"]["bench"]["api"] = api
    if api == "anthropic-messages":
        settings["providers"]["bench"]["baseUrl"] = site.model.url
    write(models, settings)
    site.run_shell([f"echo done >> {PROOF}"], 1)


def test_processes_that_lose_their_parent_are_counted_and_ended(tmp_path: Path) -> None:
    (tmp_path / "spin.py").write_text("import os\nprint(os.getpid(), flush=True)\nwhile True: pass")
    command = ["sh", "-c", f"setsid {sys.executable} -I -S -u spin.py & exit 3"]
    found, printed = headless.run_metered(command, {"PATH": "/usr/bin:/bin"}, tmp_path)
    assert found["code"] == 3
    # It runs until it is killed, which is a second; the shell alone takes some milliseconds.
    assert found["cpu"] > 0.05
    assert not Path(f"/proc/{int(printed)}").exists()


class Silent(Pigeon):
    """Says nothing, does nothing and is content."""

    def command(self, prompt: str) -> list[str]:
        return ["true"]


class Liar(Pigeon):
    """Prints the answer without asking anybody."""

    def command(self, prompt: str) -> list[str]:
        return ["echo", TEXT]


def test_what_does_not_work_does_not_count(tmp_path: Path) -> None:
    silent, liar = Site(Silent(), tmp_path, "silent"), Site(Liar(), tmp_path, "liar")
    with pytest.raises(RunFailed, match="printed no answer"):
        silent.answer()
    with pytest.raises(RunFailed, match="0 of 1 lines"):
        liar.run_shell([f"echo done >> {PROOF}"], 1)
    with pytest.raises(RunFailed, match="0 of 1 samples"):
        liar.answer(needles=[PROMPT])
    silent.close()
    liar.close()


def test_an_agent_that_stays_answers_prompts(site: Site) -> None:
    site.model.play()
    agent = RpcAgent(site)
    try:
        agent.start()
        conversation = agent.open()
        assert agent.prompt(conversation, PROMPT).wait().characters == len(TEXT)
        assert agent.cpu() > 0
        assert agent.memory_mb() > 1
    finally:
        agent.stop()
    assert all(program.poll() is not None for program in agent.programs)


def test_a_long_history_is_sent(site: Site) -> None:
    session, restore = write_history(site, 100)
    for _ in range(2):
        restore()
        site.answer(site.peer.resume(session, PROMPT), samples_of(100))
    with pytest.raises(RunFailed, match="samples of the history"):
        site.answer(site.peer.resume(session, PROMPT), samples_of(1000))


def test_a_folder_is_filled_with_sessions_that_can_be_continued(site: Site) -> None:
    fill_folder(site, 5)
    assert len(list((site.home / ".pigeon/agent/sessions").rglob("*.jsonl"))) == 5
    command = site.peer.command(PROMPT)
    site.answer([*command[:-2], "--continue", *command[-2:]], [TEXT])


@pytest.mark.parametrize("title", ["tools of a tool server", "permission rules", "agents that an agent starts"])
def test_growing_work_is_done(site: Site, title: str) -> None:
    [chart] = [chart for chart in growth.CHARTS if chart.title == title]
    assert chart.prepare(site, 3)()["cpu"] > 0


def test_who_fails_twice_is_left_out_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    tried: list[str] = []

    def fail() -> dict[str, float]:
        tried.append("fail")
        raise RunFailed("no answer")

    numbers = iter([90.0, 1.0, 3.0, 2.0])
    found = interleave(3, {"good": lambda: {"cpu": next(numbers)}, "bad": fail}, "row")
    assert found == {"good": {"cpu": 2.0}}
    assert len(tried) == 2
    assert "row: bad: RunFailed: no answer" in capsys.readouterr().err


def test_who_cannot_be_prepared_is_left_out_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert try_each(["1", "two"], int, "chart") == {"1": 1}
    assert "chart: two: ValueError" in capsys.readouterr().err


def test_every_agent_has_a_version_that_is_installed() -> None:
    assert {peer.name for peer in ALL} - {"pigeon"} <= set(VERSIONS)
    assert all(version[0].isdigit() for version in VERSIONS.values())
    assert len(VERSIONS) == len(PACKAGES)
    assert all(isinstance(peer, Peer) and peer.title for peer in ALL)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--parts", "answer"], "answer is none of"),
        (["--agents", "vim"], "vim is none of"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.parse(arguments)
    assert named in capsys.readouterr().err


def test_growth_is_told_apart() -> None:
    def curve(power: float) -> dict[int, float]:
        return {size: 0.1 + size**power / 1e6 for size in (10, 1000, 10_000, 100_000)}

    assert page.exponent_of(curve(1)) == pytest.approx(1, abs=0.01)
    assert page.exponent_of(curve(1.3)) == pytest.approx(1.3, abs=0.01)
    assert page.exponent_of({1: 0.1, 10: 0.1, 100: 0.11}) is None


def test_the_page_and_the_pictures_are_made_of_the_figures() -> None:
    results = page.load()
    text = page.PAGE.read_text()
    assert text.partition(page.BEGIN)[2].partition(page.END)[0].strip() == page.render(results).strip()
    drawn = page.draw(results)
    assert set(drawn) == {page.GROWTH_PICTURE, page.ANSWER_PICTURE}
    for picture, content in drawn.items():
        assert picture.read_text() == content
        assert ElementTree.fromstring(content).tag.endswith("svg")


def test_figures_are_finite_and_pigeon_is_in_every_table() -> None:
    results = page.load()
    for part in ("answers", "staying", "libraries", "sizes"):
        table = results[part]["figures"]
        assert any(name.startswith("Pigeon") for name in table)
        assert all(figure > 0 or math.isnan(figure) for row in table.values() for figure in row.values())
    for curves in results["growth"]["figures"].values():
        assert "Pigeon" in curves


def test_linear_growth_is_parallel_to_the_dotted_line() -> None:
    drawn = charts.draw_curves([("work", {"one": {10: 1.0, 100: 10.0, 1000: 100.0}})])
    paths = [path.get("d", "") for path in ElementTree.fromstring(drawn).iter() if path.tag.endswith("path")]
    dotted, curve = (path[1:].split("L") for path in paths[:2])

    def slope(points: list[str]) -> float:
        (x, y), (right, up) = (map(float, points[end].split()) for end in (0, -1))
        return (up - y) / (right - x)

    assert slope(dotted) == pytest.approx(slope(curve), rel=0.01)
