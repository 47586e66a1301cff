"""Finding extensions and loading them: all or nothing, in order, each once."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fakes.extension_port import Stage
from pigeon.extensions.runtime import loading
from pigeon.extensions.runtime.discovery import Source, find_named_sources, find_project_sources, find_user_sources
from pigeon.session.hooks import PromptInput
from pigeon.wire.errors import StartupError


def names(sources: list[Source]) -> list[str]:
    return [Path(source.path).name for source in sources]


def touch(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_files_and_packages_of_a_folder_are_found_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "extensions"
    for name in ("b.py", "a.py", "_private.py", ".hidden.py", "notes.md", "pack/__init__.py", "plain/x.py"):
        touch(folder / name)
    found = find_user_sources(str(tmp_path), [], "/home/ann")
    assert [Path(source.path).relative_to(folder).as_posix() for source in found] == [
        "a.py",
        "b.py",
        "pack/__init__.py",
    ]
    assert {(source.scope, source.origin) for source in found} == {("user", "auto")}


def test_listed_extensions_come_first_and_nothing_comes_twice(tmp_path: Path) -> None:
    touch(tmp_path / "extensions" / "a.py")
    other = touch(tmp_path / "elsewhere" / "b.py")
    link = tmp_path / "link.py"
    link.symlink_to(other)
    found = find_user_sources(str(tmp_path), ["elsewhere/b.py", str(link), "installed-one", "gone/x.py"], "/home/ann")
    assert names(found) == ["b.py", "pigeon.extensions:installed-one", "x.py", "a.py"]


def test_a_missing_file_on_the_command_line_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"Failed to load extension .nowhere\.py"):
        find_named_sources(["nowhere.py"], str(tmp_path), "/home/ann")
    touch(tmp_path / "folder" / "one.py")
    touch(tmp_path / "pack" / "__init__.py")
    assert names(find_named_sources(["folder", "~/pack"], str(tmp_path), str(tmp_path))) == ["one.py", "__init__.py"]


def test_a_project_has_folders_of_ours_and_of_pi(tmp_path: Path) -> None:
    touch(tmp_path / ".pigeon" / "extensions" / "a.py")
    touch(tmp_path / ".pi" / "extensions" / "b.py")
    found = find_project_sources([str(tmp_path / ".pigeon"), str(tmp_path / ".pi"), str(tmp_path / "none")])
    assert names(found) == ["a.py", "b.py"]
    assert {source.scope for source in found} == {"project"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise ValueError('at import')", "at import"),
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("def broken(:", "invalid syntax"),
        ("sys.exit(1)", "end the process"),
        ("x = 1", "neither an Extension"),
        ("a = Extension('a'); b = Extension('b')", "several Extensions"),
        ("ext = Extension('x', needs=['world'])", "unknown capability: world"),
        ("ext = Extension('x')\next.on('no_such_event')", "there is no event 'no_such_event'"),
        ("ext = Extension('x')\next.command('two words')", "cannot be the name of a command"),
        ("def setup(ext):\n    ext.context.session.append_entry('x')", "There is no session yet"),
        ("async def setup(ext):\n    ext.command('x')(print)\n    raise ValueError('in setup')", "in setup"),
        ("ext = Extension('x')\n@ext.tool\ndef t(a): 'x'", "needs a type hint"),
    ],
)
async def test_a_module_that_cannot_be_loaded_leaves_nothing_behind(stage: Stage, text: str, told: str) -> None:
    import re
    import sys

    before = set(sys.modules)
    await stage.load("bad", text)
    await stage.load("good", "ext = Extension('good')\n\n@ext.command('hi')\ndef hi(args):\n    pass\n")
    stage.bind()
    ((path, event, error),) = stage.errors()
    assert (path, event) == ("bad.py", "load")
    assert re.search(told, error)
    assert [command.name for command in stage.runner.hooks.list_commands()] == ["hi"]
    assert not [name for name in set(sys.modules) - before if "bad" in name]


async def test_a_module_that_hangs_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LOAD_SECONDS", 0.1)
    await stage.load("bad", "while True: pass")
    stage.bind()
    assert "took longer" in stage.errors()[0][2]


async def test_a_typescript_extension_is_told_of(stage: Stage, tmp_path: Path) -> None:
    path = touch(tmp_path / "guard.ts", "export default () => {}")
    await stage.runner.load([Source(str(path), "temporary", "cli")])
    stage.bind()
    assert "written in Python" in stage.errors()[0][2]


async def test_a_package_may_import_its_own_modules(stage: Stage, tmp_path: Path) -> None:
    touch(tmp_path / "pack" / "words.py", "WORD = 'coo'\n")
    init = "from pigeon.extensions import *\nfrom .words import WORD\next = Extension('pack')\n"
    init += "@ext.on(Input)\nasync def say(event, ctx):\n    from . import words\n    return Transform(words.WORD)\n"
    path = touch(tmp_path / "pack" / "__init__.py", init)
    await stage.runner.load([Source(str(path), "user", "auto")])
    stage.bind()
    said = await stage.runner.hooks.transform_input(PromptInput("x", []))
    assert said is not None
    assert said.text == "coo"


async def test_an_entry_point_is_loaded_by_its_name(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [EntryPoint("bird", "pigeon.extensions:Extension", "pigeon.extensions")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda ext: ext.command("sing")(print))
    await stage.runner.load(find_user_sources("/nowhere", ["bird", "fish"], "/home/ann"))
    stage.bind()
    assert [command.name for command in stage.runner.hooks.list_commands()] == ["sing"]
    assert "no installed package" in stage.errors()[0][2]


async def test_the_same_file_is_loaded_once(stage: Stage) -> None:
    source = stage.source("one", "ext = Extension('one')\n\n@ext.command('x')\ndef x(args): pass\n")
    await stage.runner.load([source])
    await stage.runner.load([source])
    assert len(stage.runner.hooks.list_commands()) == 1


async def test_flags_get_their_values_from_the_command_line(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"strict": True, "level": "high", "quiet": "false"})
    await stage.load(
        "f",
        """
ext = Extension("f")
strict = ext.flag("strict")
level = ext.flag("--level", default=None)
quiet = ext.flag("quiet", default=True)
other = ext.flag("other", default="x")

@ext.on(Input)
async def show(event, ctx):
    return Transform(repr([strict.value, level.value, quiet.value, other.value, bool(strict)]))
""",
    )
    stage.bind()
    said = await stage.runner.hooks.transform_input(PromptInput("", []))
    assert said is not None
    assert said.text == "[True, 'high', False, 'x', True]"
    assert stage.runner.list_known_flags() == {"strict": False, "level": True, "quiet": False, "other": True}
    await stage.runner.close()


async def test_only_extensions_from_outside_the_project_vote_on_its_trust(stage: Stage) -> None:
    vote = "ext = Extension('x')\n\n@ext.on(ProjectTrust)\nasync def vote(event, ctx):\n    return Trust({})\n"
    await stage.load("inside", vote.format(True), "project")
    assert await stage.runner.ask_project_trust("/work") is None
    await stage.load("outside", vote.format(False))
    vote_outside = await stage.runner.ask_project_trust("/work")
    assert vote_outside is not None
    assert (vote_outside.trusted, vote_outside.remember) == (False, False)


def test_looking_for_extensions_imports_nothing_else_of_them() -> None:
    import subprocess
    import sys

    code = (
        "import pigeon.extensions.agent_extensions, sys\n"
        "print(*sorted(name for name in sys.modules if name.startswith('pigeon.extensions')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "pigeon.extensions",
        "pigeon.extensions.agent_extensions",
        "pigeon.extensions.runtime",
        "pigeon.extensions.runtime.discovery",
    ]
