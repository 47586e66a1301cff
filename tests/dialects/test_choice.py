"""Which dialect is spoken: asked for, by the environment, by name, by a telling flag."""

from __future__ import annotations

import pytest

from pigeon.app.environment import family_agent_of
from pigeon.dialects.choice import NAMES, choose_dialect_name
from pigeon.wire.errors import StartupError
from support.records import dialect_for


@pytest.mark.parametrize(
    ("asked", "program", "arguments", "environment", "spoken"),
    [
        (None, "pigeon", [], {}, "pi"),
        ("omp", "xcsh", ["--no-title"], {"PIGEON_DIALECT": "pi"}, "omp"),
        (None, "xcsh", ["--no-title"], {"PIGEON_DIALECT": "companion"}, "companion"),
        (None, "/usr/local/bin/omp", ["--no-title"], {}, "omp"),
        (None, "C:/tools/xcsh.exe", [], {}, "xcsh"),
        (None, "pi.py", [], {}, "pi"),
        (None, "pigeon", ["--no-title"], {}, "xcsh"),
        (None, "pigeon", ["--no-rules"], {}, "xcsh"),
        (None, "pigeon", ["--provider-session-id", "x"], {}, "xcsh"),
        (None, "python", ["--no-skills"], {"PIGEON_DIALECT": ""}, "pi"),
    ],
)
def test_the_first_word_counts(
    asked: str | None, program: str, arguments: list[str], environment: dict[str, str], spoken: str
) -> None:
    assert choose_dialect_name(asked, family_agent_of(program), arguments, environment) == spoken


def test_a_name_that_nobody_speaks_is_refused_with_the_list() -> None:
    with pytest.raises(StartupError, match=r"klingon.*companion"):
        choose_dialect_name("klingon", "", [], {})


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_its_speaker(name: str) -> None:
    assert dialect_for(name).name == name
