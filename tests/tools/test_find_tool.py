from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.tool_run import call_for_failure, call_for_text, call_tool, files_of, paths_in
from pigeon.system.held_paths import resolve_and_hold
from pigeon.system.process.start import ProcessOwner
from pigeon.system.process.variables import plain_environment
from pigeon.tools.file_access import FileAccess
from pigeon.tools.find import FindTool
from pigeon.wire.base import ABSENT
from pigeon.workspaces.local import LocalWorkspace
from pigeon.workspaces.records import SearchEnd
from pigeon.workspaces.ripgrep import Ripgrep
from support.agent_folders import make_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.fixture
def find(project: Path, processes: ProcessOwner) -> FindTool:
    return FindTool(paths_in(project), files_of(processes))


async def test_files_are_found_by_name(find: FindTool) -> None:
    outcome = await call_tool(find, pattern="*.py")
    assert outcome.content[0].text.split("\n") == [".hidden/x.py", "src/a.py", "src/deep/b.py"]
    assert outcome.details is ABSENT


async def test_directories_are_found_too(find: FindTool) -> None:
    assert await call_for_text(find, pattern="deep") == "src/deep/"
    assert await call_for_text(find, pattern="src/**") == "src/a.py\nsrc/deep/\nsrc/deep/b.py\nsrc/deep/c.ts"


async def test_patterns_with_a_slash_match_the_path(find: FindTool, project: Path) -> None:
    assert await call_for_text(find, pattern="deep/*.ts") == "src/deep/c.ts"
    assert await call_for_text(find, pattern="**/*.md") == "README.md"
    assert await call_for_text(find, pattern=f"{project}/src/*.py") == "src/a.py"


async def test_what_gitignore_names_is_not_found(find: FindTool) -> None:
    assert await call_for_text(find, pattern="out.py") == "No files found matching pattern"
    assert await call_for_text(find, pattern="*.log") == "No files found matching pattern"


async def test_links_and_empty_directories_are_found(find: FindTool, project: Path) -> None:
    (project / "CLAUDE.md").symlink_to("README.md")
    (project / "src/dangling.md").symlink_to("nowhere")
    (project / "src/folder-link").symlink_to("deep")
    (project / "src/empty/inner").mkdir(parents=True)
    (project / "logs").mkdir()
    (project / "logs/only.log").write_text("ignored")
    os.mkfifo(project / "pipe")
    assert await call_for_text(find, pattern="*.md") == "CLAUDE.md\nREADME.md\nsrc/dangling.md"
    assert await call_for_text(find, pattern="{inner,empty,logs,pipe,folder-link}") == (
        "logs/\npipe\nsrc/empty/\nsrc/empty/inner/\nsrc/folder-link"
    )
    assert await call_for_text(find, pattern="src/*") == (
        "src/a.py\nsrc/dangling.md\nsrc/deep/\nsrc/empty/\nsrc/folder-link"
    )


async def test_links_and_empty_directories_that_are_ignored_are_not_found(find: FindTool, project: Path) -> None:
    (project / "link.log").symlink_to("README.md")
    (project / "build/link").symlink_to("out.py")
    (project / "src/build").mkdir()
    (project / ".git/empty").mkdir()
    (project / "src/.ignore").write_text("deep/link\n")
    (project / "src/deep/link").symlink_to("b.py")
    assert await call_for_text(find, pattern="{link*,build,empty,.git}") == "No files found matching pattern"


async def test_links_in_a_circle_are_listed_and_not_followed(find: FindTool, project: Path) -> None:
    (project / "src/up").symlink_to("..")
    (project / "src/self").symlink_to("self")
    (project / "src/deep/here").symlink_to(".")
    assert await call_for_text(find, pattern="{up,self,here}") == "src/deep/here\nsrc/self\nsrc/up"


async def test_links_count_for_the_limit(find: FindTool, project: Path) -> None:
    (project / "a.md").symlink_to("README.md")
    outcome = await call_tool(find, pattern="*.md", limit=1)
    assert outcome.details == {"resultLimitReached": 1}
    assert await call_for_text(find, pattern="*.md", limit=2) == "README.md\na.md"


async def test_names_that_are_no_text_are_found_with_what_is_below(find: FindTool, project: Path) -> None:
    odd = os.fsencode(project) + b"/caf\xe9"
    os.mkdir(odd)
    os.symlink(b"x", odd + b"/link")
    os.close(os.open(odd + b"/file", os.O_CREAT | os.O_WRONLY))
    assert await call_for_text(find, pattern="caf*/**") == "caf\ufffd/file\ncaf\ufffd/link"


async def test_an_aborted_or_endless_look_for_links_ends(project: Path, processes: ProcessOwner) -> None:
    outcome = await call_for_text(FindTool(paths_in(project), files_of(processes), time_box=0.0), pattern="*")
    assert outcome.endswith("[Search stopped after 0 seconds. Search a smaller directory for all results]")
    with resolve_and_hold(str(project)) as folder:
        ripgrep = Ripgrep(processes, lambda: plain_environment(os.environ), "/nowhere")
        assert list(ripgrep.find_unlisted(folder, set(), lambda _: True, lambda: True)) == []


async def test_another_directory_can_be_searched(find: FindTool, project: Path) -> None:
    assert await call_for_text(find, pattern="*.ts", path="src") == "deep/c.ts"
    assert (await call_for_failure(find, pattern="*", path="gone")).text == f"Path not found: {project}/gone"
    assert (await call_for_failure(find, pattern="*", path="README.md")).text == f"Not a directory: {project}/README.md"


async def test_the_number_of_results_is_limited(find: FindTool) -> None:
    outcome = await call_tool(find, pattern="*.py", limit=1)
    assert outcome.content[0].text == (
        ".hidden/x.py\n\n[1 results limit reached. Use limit=2 for more, or refine pattern]"
    )
    assert outcome.details == {"resultLimitReached": 1}


class Refusing(LocalWorkspace):
    async def search(self, *_: object, **__: object) -> SearchEnd:
        return SearchEnd("rg: out of order", unread=True)


async def test_a_search_that_ripgrep_refuses_is_an_error_with_its_reason(project: Path) -> None:
    find = FindTool(paths_in(project), FileAccess(workspace=Refusing("/")))
    assert (await call_for_failure(find, pattern="*")).text == "out of order"
