"""What is offered for the word at the cursor."""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from pigeon.terminal.screen.completion import ChatCompleter, ProjectFiles

NAMES = {"model": "choose the model", "compact": "make room", "skill:model-cards": "a skill"}


def offered(folder: Path, text: str) -> list[str]:
    completer = ChatCompleter(NAMES, ProjectFiles(str(folder), {}, str(folder)), {"model": ["demo/guide", "x/big"]})
    return [one.text for one in completer.get_completions(Document(text), CompleteEvent())]


def test_files_that_git_ignores_are_not_offered_and_the_nearest_name_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("built/\n")
    for name in ("src/parser.py", "src/old/parse_tree.py", "docs/sparse.md", "built/parser.js", "a b/parser notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert offered(tmp_path, "look at @parse") == [
        "src/parser.py",
        '"a b/parser notes.txt"',
        "src/old/parse_tree.py",
        "docs/sparse.md",
    ]
    assert offered(tmp_path, "@sp")[:1] == ["docs/sparse.md"]
    assert offered(tmp_path, "mail@parse") == []
    assert offered(tmp_path, '@"a b/par') == ['"a b/parser notes.txt"']


def test_what_a_command_takes_is_offered_behind_it(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_text("")
    assert offered(tmp_path, "/model ") == ["demo/guide", "x/big"]
    assert offered(tmp_path, "/model Gui") == ["demo/guide"]
    assert offered(tmp_path, "/image do") == ["dot.png"]
    assert offered(tmp_path, "/compact wh") == []


def test_commands_are_offered_at_the_beginning_only(tmp_path: Path) -> None:
    assert offered(tmp_path, "/mo") == ["model "]
    assert offered(tmp_path, "say /mo") == []
    assert offered(tmp_path, "/") == ["model ", "compact ", "skill:model-cards "]
