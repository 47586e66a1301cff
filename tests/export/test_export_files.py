"""Session files as pages: what is masked, which branch is shown, how the file is named, how much memory it takes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pigeon.app.pages import export_session_page
from pigeon.export.page_writer import PageWriter
from pigeon.secrets.redactor import KEY, Redactor
from pigeon.session.history.session_folders import SessionFolders
from pigeon.system.environment import Environment
from support.browser import PageReader
from support.sessions import FIRST_PROMPT, OTHER_PROMPT, SECRET, SessionLines, rich_session

OWN_KEY = "ck-mine+/Zq70Xw=&9_tR"

STORE = SessionFolders("/nowhere")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(
        variables={"PIGEON_CODING_AGENT_DIR": str(tmp_path / "agent")}, home=str(tmp_path), cwd=str(tmp_path)
    )


def export_text(environment: Environment, session: str, **given: Any) -> str:
    folder = Path(environment.cwd)
    (folder / "session.jsonl").write_text(session)
    return (folder / export_session_page(environment, "session.jsonl", **given)).read_text()


def test_a_page_of_everything_is_whole_and_harmless(environment: Environment) -> None:
    made = PageReader(export_text(environment, rich_session()))
    assert made.faults == []
    for text in (FIRST_PROMPT.split("**")[0], OTHER_PROMPT, "the fix", "released", "Two ways out", "git status"):
        assert text in made.text


def test_what_looks_like_a_secret_is_masked_unless_the_user_wants_it(environment: Environment) -> None:
    made = export_text(environment, rich_session())
    assert SECRET not in made
    assert "token sk-***" in made
    settings = Path(environment.agent_dir()) / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"export": {"maskSecrets": false}}')
    assert SECRET in export_text(environment, rich_session())


@pytest.mark.parametrize(
    "text",
    [
        f"```python\nkey = {OWN_KEY}\n```",
        f"```bash\nexport KEY={OWN_KEY}; x\n```",
        f"before\n{OWN_KEY}\n**bold**",
        f"`{OWN_KEY}`",
        json.dumps({"key": OWN_KEY}),
    ],
)
def test_a_key_of_the_agent_is_masked_before_colours_take_it_apart(environment: Environment, text: str) -> None:
    redactor = Redactor()
    redactor.learn_keys([(KEY, OWN_KEY)])
    lines = SessionLines()
    lines.user(text)
    lines.answer(text)
    lines.tool("bash", {"command": f"echo {OWN_KEY}"}, f"\x1b[31m{OWN_KEY[:6]}\x1b[0m{OWN_KEY[6:]}")
    lines.tool("write", {"path": "a.py", "content": text}, "Successfully wrote to a.py")
    lines.tool("edit", {"path": "a.py", "oldText": f"a = {text}", "newText": f"b = {text}"}, "done")
    folder = Path(environment.cwd)
    (folder / "session.jsonl").write_text(lines.text())
    page = folder / PageWriter(environment, STORE, redactor.mask, mask_shapes=False).write_page_of_file("session.jsonl")
    shown = PageReader(page.read_text()).text
    assert "***" in shown
    assert OWN_KEY not in shown
    assert OWN_KEY[8:] not in shown


def test_the_branch_of_the_last_entry_is_the_active_one(environment: Environment) -> None:
    lines = SessionLines()
    start = lines.user("root")
    lines.answer("the older way")
    lines.at = start
    lines.answer("the newer way")
    talk, other = export_text(environment, lines.text()).split("<h2>Other branches</h2>\n")
    assert ("the newer way" in talk, "the older way" in talk, "the older way" in other) == (True, False, True)


def test_a_page_for_people_is_named_after_the_session(environment: Environment) -> None:
    export_text(environment, rich_session(), by_title=True)
    assert (Path(environment.cwd) / "pigeon-negative-numbers-in-the-parser-aa112233.html").exists()
    export_text(environment, rich_session())
    assert (Path(environment.cwd) / "pigeon-session-session.html").exists()


def test_a_page_is_written_without_having_all_of_it_in_memory(environment: Environment) -> None:
    lines = SessionLines()
    for number in range(40):
        lines.tool("bash", {"command": f"cat {number}"}, f"{number} " + "x" * 100_000)
    session = lines.text()
    folder = Path(environment.cwd)
    (folder / "session.jsonl").write_text(session)
    export_session_page(environment, "session.jsonl", "warm.html")
    tracemalloc.start()
    try:
        export_session_page(environment, "session.jsonl", "page.html")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (folder / "page.html").stat().st_size > 4_000_000
    # The file, its lines, and a few pieces of the page; not the page.
    assert peak < 2 * len(session) + 5_000_000


def test_a_page_that_cannot_be_finished_leaves_the_older_one(environment: Environment) -> None:
    made = export_text(environment, rich_session(), asked="page.html")

    def mask(data: bytes) -> bytes:
        if b"<!DOCTYPE" in data:
            raise MemoryError
        return data

    with pytest.raises(MemoryError):
        PageWriter(environment, STORE, mask).write_page_of_file("session.jsonl", "page.html")
    folder = Path(environment.cwd)
    assert (folder / "page.html").read_text() == made
    assert sorted(path.name for path in folder.iterdir()) == ["page.html", "session.jsonl"]
