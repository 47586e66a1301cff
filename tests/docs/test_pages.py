"""The pages know everything that the code knows, and point only to what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec import UNSET, Struct, structs

from pigeon.cli.args import list_option_rows
from pigeon.config.models_file import parse_models_file
from pigeon.config.settings import Settings
from pigeon.dialects.choice import NAMES
from support.source_tree import ROOT

DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "pigeon"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_json_that_is_shown_whole_is_json(page: Path) -> None:
    for line in re.findall(r'^ {4}(\{"type":.+\}|\{"id":.+\})$', page.read_text("utf-8"), re.MULTILINE):
        if "…" not in line:
            json.loads(line)


def test_every_setting_is_listed_with_its_default() -> None:
    rows = _rows("settings.md")
    for key, default in _settings(Settings):
        assert key in rows, f"docs/settings.md does not tell of {key}"
        if isinstance(default, str | int | float):
            shown = str(default).lower() if isinstance(default, bool) else f"{default}"
            assert rows[key].startswith((f"`{shown}`", shown)), f"the default of {key} is {shown}"


def test_nothing_is_listed_that_is_no_setting() -> None:
    known = {key for key, _ in _settings(Settings)}
    assert set(_rows("settings.md")) <= known


def test_every_flag_is_in_the_host_guide() -> None:
    page = (DOCS / "hosts.md").read_text("utf-8")
    flags = [name for names, _, _ in list_option_rows() for name in names.split() if name.startswith("--")]
    missing = [flag for flag in flags if not re.search(rf"`{flag}[` ]", page)]
    assert not missing


def test_every_dialect_has_a_column() -> None:
    page = (DOCS / "hosts.md").read_text("utf-8")
    assert "| | " + " | ".join(f"`{name}`" for name in NAMES) + " |" in page


def test_the_example_of_a_models_file_is_one() -> None:
    found = re.search(r"^```json\n(.+?)^```$", _text("models.md"), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert parse_models_file(found[1].encode()).problem is None


def test_agents_md_is_short_and_names_only_paths_that_exist() -> None:
    text = (ROOT / "AGENTS.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120
    paths = set(re.findall(r"`((?:[\w.*-]+/)+[\w.*-]*)`", text))
    assert not [path for path in paths if not any(SOURCE.glob(path)) and not any(ROOT.glob(path))]


def test_the_map_names_every_package() -> None:
    named = re.findall(r"^\| `(\w+)/` \|", (ROOT / "AGENTS.md").read_text("utf-8"), re.MULTILINE)
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} <= set(named)


def test_every_make_command_is_a_target() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    shown = re.findall(r"^ {4}make ([\w-]+)", (ROOT / "AGENTS.md").read_text("utf-8"), re.MULTILINE)
    assert shown
    assert not set(shown) - targets


@pytest.mark.parametrize("page", ["architecture.md", *(f"decisions/{page.name}" for page in DECISIONS)])
def test_a_page_about_the_inside_names_only_files_that_exist(page: str) -> None:
    named = set(re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?|\w+/\w+\.py)`", _text(page)))
    assert not [path for path in named if not (SOURCE / path).exists() and not (ROOT / path).exists()]


def test_the_glossary_has_each_word_once_in_order() -> None:
    glossary = _text("architecture.md").split("## Glossary")[1]
    words = re.findall(r"^\| ([a-z ]+) \| ", glossary, re.MULTILINE)[1:]
    assert words == sorted(set(words))
    assert len(words) > 30


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_short_and_has_its_three_parts(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(text.splitlines()) <= 40
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequence"]
    assert text.startswith(f"# {page.name[:4]} ")


def _text(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def _anchors(file: Path) -> set[str]:
    text = file.read_text("utf-8")
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles} | set(
        re.findall(r'<a id="([\w-]+)">', text)
    )


def _rows(name: str) -> dict[str, str]:
    """Keys of a table's first column with what its second column says."""
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", _text(name), re.MULTILINE)
    return {key: said for keys, said in rows for key in re.findall(r"`([\w.]+)`", keys)}


def _settings(kind: type[Struct], before: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for field in structs.fields(kind):
        groups = [one for one in _parts(field.type) if isinstance(one, type) and issubclass(one, Struct)]
        if groups:
            found += _settings(groups[0], f"{before}{field.encode_name}.")
        else:
            found.append((before + field.encode_name, None if field.default is UNSET else field.default))
    return found


def _parts(hint: object) -> tuple[object, ...]:
    return getattr(hint, "__args__", None) or (hint,)
