from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pigeon.system.ignore_files import Ignored, IgnoreLines, is_in_repository
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import plain_environment
from pigeon.workspaces.ripgrep import Ripgrep

RG = Ripgrep(ProcessOwner(), lambda: plain_environment(os.environ), "/nowhere").find_program()
RULES = r"a b * *.log a/ /a a/b **/b a/** a/* /b/ ? a/**/b !a !*.log !/a/b [ab] [!a] #x \#x !*/ ** */a ab* **/a/**"
FILES = (".gitignore", "a/.gitignore", ".ignore", "../.gitignore", ".git/info/exclude", "a/.git/x")
names = st.sampled_from(["a", "b", "ab", "c.log", "b c", "#x"])
trees = st.lists(st.lists(names, min_size=1, max_size=4).map("/".join), min_size=1, max_size=12)
rules = st.lists(st.sampled_from([*RULES.split(" "), "b\\ c", "a "]), max_size=4)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(trees, st.dictionaries(st.sampled_from(FILES), rules))
def test_what_is_ignored_is_what_ripgrep_ignores(
    tmp_path: Path, paths: list[str], ignoring: dict[str, list[str]]
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        root = Path(folder, "root")
        for path, content in [*((path, []) for path in paths), *ignoring.items()]:
            with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text("\n".join(content))
        ignored = Ignored(str(root), "/nowhere/ignore")
        kept = {path for path in everything(root) if not left_out(path, ignored)}
        bounds = [] if is_in_repository(str(root)) else ["--no-require-git"]
        command = [RG, "--no-config", "--files", "--hidden", "--glob=!.git", "--null", *bounds]
        listed = subprocess.run(command, cwd=root, capture_output=True, check=False).stdout
        assert kept == set(listed.decode().split("\0")[:-1])


def everything(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]


def left_out(path: str, ignored: Ignored) -> bool:
    parts = path.split("/")
    return any(ignored("/".join(parts[:n]), n < len(parts)) for n in range(1, len(parts) + 1))


def test_a_line_that_makes_no_sense_is_passed_over() -> None:
    lines = IgnoreLines("[z-a]\n" + "x" * 10_000 + "\nb\n")
    assert lines.verdict("b", False) is True
    assert lines.verdict("z", False) is None


def test_a_line_that_ends_with_a_slash_is_about_folders_only() -> None:
    lines = IgnoreLines("build/\n/top/\n!kept/")
    for name, ignored in (("build", True), ("deep/build", True), ("top", True), ("kept", False)):
        assert (lines.verdict(name, is_folder=True), lines.verdict(name, is_folder=False)) == (ignored, None)
