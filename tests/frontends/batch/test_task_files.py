"""Tasks from files and programs: what is read, and that everything wrong is named with its line."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.frontends.batch.preparing import BadTasks
from pigeon.frontends.batch.records import Check, Task, TaskSpec, Workspace, hash_of
from pigeon.frontends.batch.task_files import BatchDefaults, TaskReader
from pigeon.wire.errors import UsageError


def reader(**defaults: Any) -> TaskReader:
    return TaskReader(BatchDefaults(**defaults), lambda path: f"/here/{path}", lambda spec, place: ())


def read(
    tmp_path: Path, data: str | bytes, name: str = "tasks.jsonl", **defaults: Any
) -> tuple[list[TaskSpec], list[str]]:
    file = tmp_path / name
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    reading = reader(**defaults)
    return list(reading.read_file(str(file))), [str(problem) for problem in reading.problems]


def test_a_line_of_json_is_a_task_with_all_its_members(tmp_path: Path) -> None:
    line = (
        '{"id":"a","prompt":"do it","workspace":{"git":"https://h/r.git","revision":"v1"},"model":"scripted/s.json",'
        '"limits":{"turns":3},"output":{"type":"object"},"check":{"command":"true","seconds":5},"group":"g"}\n'
    )
    (spec,), problems = read(tmp_path, line, limits={"cost": 1, "turns": 9})
    assert problems == []
    assert spec == TaskSpec(
        id="a",
        prompt="do it",
        workspace=Workspace(git="https://h/r.git", revision="v1"),
        model="scripted//here/s.json",
        limits={"cost": 1, "turns": 3},
        output={"type": "object"},
        check=Check(command="true", seconds=5),
        group="g",
    )


def test_every_bad_line_is_reported_with_its_number_and_the_good_ones_are_read(tmp_path: Path) -> None:
    lines = [
        '{"prompt":"fine"}',
        '{"promt":"x"}',
        "no json",
        "",
        '{"prompt":"x","limits":{"turn":1}}',
        '{"prompt":"x","workspace":{"folder":"a","git":"b"}}',
        '{"prompt":"x","workspace":{"folder":"a","branch":"b"}}',
        '{"prompt":"x","id":"same"}',
        '{"prompt":"y","id":"same"}',
        '{"prompt":"\\ud800"}',
        '{"prompt":7}',
        "[1]",
        '{"prompt":" "}',
        '{"prompt":"x","check":""}',
        '{"prompt":"x","workspace":{"git":"--upload-pack=x"}}',
        '{"prompt":"x","id":"a\\u0007b"}',
    ]
    specs, problems = read(tmp_path, "\n".join(lines).encode() + b"\n{\xff}\n")
    assert [spec.prompt for spec in specs] == ["fine", "x"]
    assert [problem.partition(":")[0] for problem in problems] == [
        f"line {number}" for number in (2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17)
    ]
    assert 'unknown field "promt"' in problems[0]
    assert "limits.turn" in problems[2]
    assert problems[-1] == "line 17: it is not UTF-8"


def test_a_list_is_read_as_well_and_one_that_is_broken_is_reported(tmp_path: Path) -> None:
    specs, problems = read(
        tmp_path, '[{"id": "a", "prompt": "x"}, {"id": "b", "promt": "y"}, {"id": "c", "prompt": "z"}]'
    )
    assert [spec.id for spec in specs] == ["a", "c"]
    assert len(problems) == 1
    assert problems[0].startswith("task 2")
    specs, problems = read(tmp_path, '[{"id": "a", "prompt": "x"},')
    assert specs == []
    assert len(problems) == 1
    assert problems[0].startswith("line 1: it is not JSON")


def test_rows_of_csv_fill_a_template_whatever_their_quotes_and_line_ends(tmp_path: Path) -> None:
    data = '\ufeff\r\npackage,git,note\r\n"a, ""b""\r\nc",repo,x\r\n\r\n;,r2,\r\n'
    specs, problems = read(tmp_path, data, "tasks.csv", template="Upgrade {package}; {{keep}} {note}")
    assert problems == []
    assert [spec.prompt for spec in specs] == ['Upgrade a, "b"\r\nc; {keep} x', "Upgrade ;; {keep} "]
    assert [spec.workspace for spec in specs] == [Workspace(git="/here/repo"), Workspace(git="/here/r2")]


def test_rows_that_do_not_fit_are_reported_with_the_line_they_begin_on(tmp_path: Path) -> None:
    data = b'prompt,limits\nfine,\n"two\nlines",\nshort\na,b,c\nx,{"turns": 0}\nx,nonsense\n\xff,\n"never ends,\n'
    specs, problems = read(tmp_path, data, "tasks.csv")
    assert [spec.prompt for spec in specs] == ["fine", "two\nlines"]
    assert [problem.partition(":")[0] for problem in problems] == [f"line {n}" for n in (5, 6, 7, 8, 9, 10)]


@pytest.mark.parametrize(
    ("head", "reason"), [("prompt,prompt", "appears twice"), ("prompt,,", "twice"), ("prompt,", "has no name")]
)
def test_a_head_that_is_not_clear_is_refused(tmp_path: Path, head: str, reason: str) -> None:
    specs, (problem,) = read(tmp_path, f"{head}\na,b\n", "tasks.csv")
    assert specs == []
    assert reason in problem or "no name" in problem


def test_other_separators_and_unknown_names_of_files_are_recognized(tmp_path: Path) -> None:
    assert [one.prompt for one in read(tmp_path, "prompt;id\na,b;1\n", "t.csv")[0]] == ["a,b"]
    assert [one.prompt for one in read(tmp_path, "prompt\tid\na\t1\n", "t.tsv")[0]] == ["a"]
    assert [one.prompt for one in read(tmp_path, '{"prompt":"a"}', "tasks")[0]] == ["a"]
    assert [one.prompt for one in read(tmp_path, "prompt\na\n", "tasks.txt")[0]] == ["a"]
    assert [one.prompt for one in read(tmp_path, '[{"prompt":"a"},"b"]', "t.json")[0]] == ["a", "b"]


def test_a_field_of_the_template_that_a_task_does_not_have_is_named(tmp_path: Path) -> None:
    specs, problems = read(
        tmp_path, '{"package":"a"}\n{"pakage":"a"}\n{"package":"b","x":1}\n', template="Up {package}"
    )
    assert [spec.prompt for spec in specs] == ["Up a"]
    assert "{package}" in problems[0]
    assert 'unknown field "x"' in problems[1]


def test_a_prompt_of_its_own_comes_before_the_template_and_is_no_template() -> None:
    specs = list(reader(template="Up {package}").read_values([{"prompt": "Take {this} as it is"}]))
    assert [spec.prompt for spec in specs] == ["Take {this} as it is"]


def test_tasks_without_an_id_keep_theirs_when_others_come_or_go() -> None:
    one = [spec.id for spec in reader().read_values(["a", "b", "b"])]
    other = [spec.id for spec in reader().read_values(["new", "b", Task(prompt="a"), "b"])]
    assert other[1:] == [one[1], one[0], one[2]]
    assert one[2] == f"{one[1]}-2"
    assert len(set(one)) == 3


def test_the_same_spec_has_the_same_hash_whatever_the_order_of_its_members() -> None:
    one = TaskSpec(id="a", prompt="p", limits={"turns": 1, "cost": 2}, options={"x": 1, "y": {"b": 1, "a": 2}})
    other = TaskSpec(id="a", prompt="p", limits={"cost": 2, "turns": 1}, options={"y": {"a": 2, "b": 1}, "x": 1})
    assert hash_of(one) == hash_of(other)
    assert hash_of(one) != hash_of(TaskSpec(id="b", prompt="p"))


@given(st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=8), st.sampled_from([",", ";", "\t"]))
def test_whatever_a_program_writes_as_csv_is_read_again(rows: list[tuple[str, str]], delimiter: str) -> None:
    kept = [(name, note) for name, note in rows if (name + note).strip() and "\0" not in name + note]
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerow(["name", "note"])
    writer.writerows(kept)
    reading = reader(template="x{name}{note}")
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(written.getvalue().encode("utf-8", "surrogatepass"))
        file.flush()
        specs = list(reading.read_file(file.name))
    broken = [one for one in kept if any("\ud800" <= char <= "\udfff" for char in "".join(one))]
    assert [spec.prompt for spec in specs] == [f"x{name}{note}" for name, note in kept if (name, note) not in broken]
    assert len(reading.problems) == len(broken)


def test_a_file_in_another_encoding_or_with_a_problem_on_every_line_says_so_in_few_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is UTF-16; save it as UTF-8"):
        read(tmp_path, '{"prompt":"x"}\n'.encode("utf-16"))
    (tmp_path / "t.jsonl").write_text("no json\n" * 3000)
    reading = reader()
    assert not list(reading.read_file(str(tmp_path / "t.jsonl")))
    assert (len(reading.problems), reading.problem_count) == (1000, 3000)
    assert str(BadTasks(reading.problems, 3000, "t")).endswith("and 2,000 more")


def test_all_unknown_members_of_a_line_and_the_limit_that_is_wrong_are_named(tmp_path: Path) -> None:
    _, problems = read(tmp_path, '{"promt":1,"prompt":"x","grup":2}\n{"prompt":"x","limits":{"turns":"x"}}\n')
    assert 'unknown field "promt", "grup"' in problems[0]
    assert '"limits.turns": expected a whole number' in problems[1]


@pytest.mark.parametrize("endless", [{"prompt": "x"}, {"wrong": "x"}])
def test_tasks_without_an_end_are_refused_whether_they_are_right_or_wrong(endless: dict[str, str]) -> None:
    tasks = TaskReader(BatchDefaults(), lambda path: path, lambda spec, place: (), most=50)
    with pytest.raises(UsageError, match=r"more than 50 tasks.*max_tasks"):
        list(tasks.read_values(itertools.repeat(endless)))
