from __future__ import annotations

from pathlib import Path

import pytest

from pigeon.config import credentials as values_module
from pigeon.config.credentials import Values
from pigeon.system.process.start import ProcessOwner


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("literal", "literal"),
        ("$A", "1"),
        ("${A}", "1"),
        ("x-${A}-$B!", "x-1-2!"),
        ("$A$B", "12"),
        ("$AB", None),
        ("$EMPTY", None),
        ("$GONE", None),
        ("${GONE}-$A", None),
        ("$$A", "$A"),
        ("$!cmd", "!cmd"),
        ("100%", "100%"),
        ("cost $5", "cost $5"),
        ("${A", "${A"),
        ("", None),
    ],
)
async def test_variables_are_put_in(value: str, result: str | None, processes: ProcessOwner) -> None:
    values = Values({"A": "1", "B": "2", "EMPTY": ""}, processes)
    assert await values.resolve(value) == result
    assert values.is_configured(value) is (result is not None)


async def test_own_variables_win(processes: ProcessOwner) -> None:
    values = Values({"A": "1"}, processes)
    assert await values.resolve("$A", {"A": "own"}) == "own"
    assert values.is_configured("$B", {"B": "x"})


async def test_the_environment_is_read_when_it_is_needed(processes: ProcessOwner) -> None:
    env: dict[str, str] = {}
    values = Values(env, processes)
    assert not values.is_configured("$LATE")
    env["LATE"] = "x"
    assert await values.resolve("$LATE") == "x"


async def test_a_command_gives_its_trimmed_output(processes: ProcessOwner) -> None:
    values = Values({"PATH": "/usr/bin:/bin", "A": "1"}, processes)
    assert await values.resolve("!echo ' key '; echo noise >&2") == "key"
    assert await values.resolve("!echo $A") == "1"


@pytest.mark.parametrize("command", ["!exit 1", "!echo x; exit 3", "!true", "!", "!no-such-program-here", "!echo a\0b"])
async def test_a_command_that_fails_or_says_nothing_is_unresolved(command: str, processes: ProcessOwner) -> None:
    assert await Values({"PATH": "/usr/bin:/bin"}, processes).resolve(command) is None


def test_a_command_counts_as_configured_without_being_run(tmp_path: Path, processes: ProcessOwner) -> None:
    assert Values({}, processes).is_configured(f"!touch {tmp_path}/ran")
    assert not (tmp_path / "ran").exists()


async def test_successes_are_kept_for_a_while_and_failures_never(tmp_path: Path, processes: ProcessOwner) -> None:
    count = tmp_path / "count"
    values = Values({"PATH": "/usr/bin:/bin"}, processes)
    command = f"!echo x >> {count}; wc -l < {count}"
    assert await values.resolve(command) == await values.resolve(command) == "1"
    failing = f"!echo x >> {count}; exit 1"
    await values.resolve(failing)
    await values.resolve(failing)
    assert len(count.read_text().splitlines()) == 3
    impatient = Values({"PATH": "/usr/bin:/bin"}, processes, keep_ms=0)
    assert await impatient.resolve(command) == "4"
    assert await impatient.resolve(command) == "5"


async def test_a_command_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, processes: ProcessOwner) -> None:
    monkeypatch.setattr(values_module, "COMMAND_TIMEOUT_S", 0.05)
    assert await Values({"PATH": "/usr/bin:/bin"}, processes).resolve("!sleep 60; echo x") is None
