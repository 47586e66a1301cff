"""Reports and comparisons: figures, tables, and pages that a browser opens without a complaint."""

from __future__ import annotations

import builtins
import csv
import re
from pathlib import Path
from typing import Any

import pytest

from pigeon.frontends.batch.batch_folder import BatchFolder
from pigeon.frontends.batch.command import write_and_announce_report
from pigeon.frontends.batch.records import TaskSpec
from pigeon.frontends.batch.report.measured import GroupFigures, largest_groups, title_of_largest
from pigeon.frontends.batch.report.statistics import Sample, flip_probability, paired_difference, success_rate
from pigeon.frontends.batch.report.writing import write_comparison, write_report
from support.batch import filled_folder, put_finished, result_of
from support.browser import Browser, BrowserPage, chromium_path

ATTACK = "=1+1<script>alert(1)</script>\"'&$x^2$"


def fill_folder(path: Path, success: int, cost: float, title: str) -> BatchFolder:
    """Thirty tasks of two models and two groups, of which so many in ten succeed."""
    specs = [TaskSpec(id=f"task-{number}", prompt="p", group=("web", ATTACK)[number % 2]) for number in range(30)]
    folder = filled_folder(path, specs, title=title)
    for number, spec in enumerate(specs):
        done = number % 10 < success
        members: dict[str, Any] = {
            "status": "done" if done else "failed",
            "error": None if done else f"The check exited with code {number % 3}",
            "model": ("acme/large", "acme/small")[number % 2],
            "cost": cost * (1 + number % 4),
            "tokens": 1000 + number,
            "seconds": 1.5 + number,
            "turns": 3 + number % 5,
            "tools": {"bash": number, "read": 1},
            "session": "session.jsonl",
            "text": ATTACK,
        }
        put_finished(folder, spec, result_of(spec, **members))
    return folder


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> tuple[BatchFolder, BatchFolder]:
    root = tmp_path_factory.mktemp("reports")
    both = fill_folder(root / "before", 5, 0.01, f"Before {ATTACK}"), fill_folder(root / "after", 8, 0.02, "After")
    for one in both:
        assert write_report(one) == []
    write_comparison(*both, str(root / "comparison.html"))
    return both


def test_a_rate_has_the_interval_of_wilson() -> None:
    found = success_rate(8, 10)
    assert (round(found.low, 3), round(found.high, 3)) == (0.490, 0.943)
    assert success_rate(0, 5).low == pytest.approx(0)
    assert success_rate(5, 5).high == pytest.approx(1)
    assert success_rate(0, 0).count == 0


def test_a_mean_has_the_interval_of_student() -> None:
    sample = Sample()
    for value in (2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0):
        sample.add(value)
    found = sample.estimate
    assert found.value == 5
    assert found.high - found.value == pytest.approx(2.365 * 2.138 / 8**0.5, rel=1e-3)


def test_beyond_its_table_the_quantile_of_student_is_still_his() -> None:
    sample = Sample()
    for value in range(41):
        sample.add(float(value))
    # 40 degrees of freedom: t is 2.0211, and not the 1.96 of the normal distribution.
    assert sample.estimate.high - 20 == pytest.approx(2.0211 * (143.5 / 41) ** 0.5, rel=1e-4)


def test_the_difference_of_two_shares_of_the_same_tasks_has_the_interval_of_newcombe() -> None:
    published = paired_difference(36, 12, 2, 0)
    assert (published.value, published.low, published.high) == pytest.approx((0.2, 0.0569, 0.3404), abs=1e-4)
    unchanged = paired_difference(10, 0, 0, 0)
    assert (unchanged.low, unchanged.high) == pytest.approx((-0.2775, 0.2775), abs=1e-4)
    assert not unchanged.is_clear


@pytest.mark.parametrize(("better", "worse", "chance"), [(0, 0, 1.0), (5, 5, 1.0), (10, 0, 2 / 1024), (6, 1, 0.125)])
def test_flips_are_held_against_chance(better: int, worse: int, chance: float) -> None:
    assert flip_probability(better, worse) == pytest.approx(chance)
    assert flip_probability(700, 600) == pytest.approx(0.0061, rel=0.05)


def test_tables_have_every_task_and_no_formula(batches: tuple[BatchFolder, BatchFolder]) -> None:
    folder = Path(batches[0].path)
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"task-{number}" for number in range(30)]
    assert rows[1]["group"] == f"'{ATTACK}"
    assert float(rows[1]["cost"]) == 0.02
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(folder / "results.parquet")
    assert table.num_rows == 30
    assert table.column("group")[1].as_py() == ATTACK
    assert table.column("turns")[1].as_py() == 4
    assert str(table.schema.field("began").type) == "timestamp[ms, tz=UTC]"


def test_the_page_names_what_is_missing_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fill_folder(tmp_path / "b", 5, 0.01, "Plain")
    really = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("matplotlib", "pyarrow"):
            raise ModuleNotFoundError(name=name)
        return really(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    write_and_announce_report(folder)
    assert "Warning: Plots need matplotlib" in capsys.readouterr().err
    # A batch writes a report after each run. Who did not ask for it is not told what it lacks.
    write_and_announce_report(folder, names_missing=False)
    said = capsys.readouterr()
    assert (said.out, said.err) == (f"Report: {tmp_path / 'b' / 'report.html'}\n", "")
    page = (tmp_path / "b" / "report.html").read_text()
    assert "Plots need matplotlib" in page
    assert "task-29" in page
    assert (tmp_path / "b" / "results.csv").exists()
    write_comparison(folder, fill_folder(tmp_path / "c", 8, 0.02, "Better"), str(tmp_path / "comparison.html"))
    page = (tmp_path / "comparison.html").read_text()
    assert "Plots need matplotlib" in page
    assert "9 up, 0 down" in page


def test_pages_have_no_script_and_no_style_but_their_sheet(batches: tuple[BatchFolder, BatchFolder]) -> None:
    for file in (Path(batches[0].path, "report.html"), Path(batches[0].path).parent / "comparison.html"):
        page = file.read_text()
        assert page.count("<svg") >= 2
        assert "<script" not in page
        assert not re.search(r"\sstyle=", page)
        assert "http-equiv" in page
        assert not re.search(r"(?:src|href)=.?https?:", page)
        ids = re.findall(r'\bid="([^"]+)"', page)
        assert len(ids) - len(set(ids)) <= 1, "two drawings share a name"


def test_the_comparison_names_the_tasks_that_flipped(batches: tuple[BatchFolder, BatchFolder]) -> None:
    page = (Path(batches[0].path).parent / "comparison.html").read_text()
    better = page[page.index("Better:") :]
    assert re.findall(r"task-\d+", better) == [f"task-{number}" for number in range(30) if 5 <= number % 10 < 8]
    assert "None." in page[page.index("Worse:") : page.index("Better:")]
    assert "+30.0 points" in page
    assert "9 up, 0 down" in page
    assert "p = 0.004" in page
    assert 'href="before/' in page


def test_what_is_compared_is_only_what_both_batches_have(tmp_path: Path) -> None:
    many = [TaskSpec(id=f"t{number}", prompt="p") for number in range(10)]
    first, second = filled_folder(tmp_path / "a", many, title="A"), filled_folder(tmp_path / "b", many[5:], title="B")
    for number, spec in enumerate(many):
        # Without a pair all fail, with a pair all succeed, in both.
        put_finished(first, spec, result_of(spec, status="done" if number >= 5 else "failed"))
        if number >= 5:
            put_finished(second, spec, result_of(spec))
    write_comparison(first, second, str(tmp_path / "c.html"))
    page = (tmp_path / "c.html").read_text()
    assert page.count("<b>100%</b>") == 2
    assert "+0.0 points" in page
    assert "5 tasks only in A, and not counted here" in page
    write_comparison(filled_folder(tmp_path / "n", [TaskSpec(id="x", prompt="p")]), second, str(tmp_path / "n.html"))
    page = (tmp_path / "n.html").read_text()
    assert "nothing to compare" in page
    assert "<h2>Figures</h2>" not in page


def test_tasks_that_are_not_done_stand_first_with_the_reason(batches: tuple[BatchFolder, BatchFolder]) -> None:
    page = Path(batches[0].path, "report.html").read_text()
    bad, good = page[page.index("not done (15)") :].split("Tasks that are done (15)")
    numbers = [int(number) for number in re.findall(r">task-(\d+)<", bad)]
    assert numbers == [number for number in range(30) if number % 10 >= 5]
    assert bad.count("<small>The check exited with") == 15
    assert "<small>" not in good[: good.index("</table>")]


@pytest.mark.skipif(chromium_path() is None, reason="there is no browser")
def test_a_browser_opens_both_pages_without_a_complaint_in_every_form(
    batches: tuple[BatchFolder, BatchFolder], tmp_path: Path
) -> None:
    pages = [Path(batches[0].path, "report.html"), Path(batches[0].path).parent / "comparison.html"]
    with Browser(tmp_path / "browser") as browser:
        for file in pages:
            for width, scheme in ((1280, "light"), (390, "dark")):
                page = BrowserPage(browser, file, width, 900, scheme)
                assert page.complaints() == []
                assert page.requests() == []
                assert page.overflow() == 0
                texts = page.ask("[...document.querySelectorAll('svg text')].map(one => getComputedStyle(one).fill)")
                behind = page.ask("getComputedStyle(document.body).backgroundColor")
                assert texts
                assert all(_contrast(text, behind) > 4.5 for text in texts), "words of plots can be read"
                page.close()


def _contrast(one: str, other: str) -> float:
    first, second = sorted((_light(one), _light(other)))
    return (second + 0.05) / (first + 0.05)


def _light(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_plot_that_has_no_room_for_all_groups_shows_the_largest_and_says_so() -> None:
    groups = {f"g{number}": GroupFigures(count=number) for number in range(20)}
    assert largest_groups(groups) == [f"g{number}" for number in range(19, 7, -1)]
    assert title_of_largest("Success", groups) == "Success (the 12 largest of 20)"
    assert title_of_largest("Success", {"one": GroupFigures()}) == "Success"
