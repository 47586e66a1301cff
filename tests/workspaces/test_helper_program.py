"""The helper as other machines run it: old Pythons, no ripgrep, and nothing of ours in its environment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fakes.machines import SshMachine
from pigeon.workspaces.records import Match, SearchQuery
from pigeon.workspaces.remote.bundle import join_helper, make_first_line
from support.remote_workspaces import workspaces

pytestmark = pytest.mark.timeout(90)
LONGEST_ARGUMENT = 128 * 1024


def test_the_helper_fits_into_one_argument_and_needs_only_the_standard_library() -> None:
    assert len(make_first_line("0" * 24)) < LONGEST_ARGUMENT / 2
    assert "pigeon.workspaces" not in join_helper().replace("from pigeon.workspaces.remote.helper.serving", "")
    assert make_first_line("0" * 24).count(b"\n") == 1


def find_old_python() -> str:
    """The oldest Python of this machine that the helper promises to run on."""
    for minor in range(8, 12):
        for place in (f"/root/.pyenv/versions/3.{minor}.*/bin/python3.{minor}", f"/usr/bin/python3.{minor}"):
            import glob

            for found in sorted(glob.glob(place)):
                return found
    pytest.skip("there is no older Python here")


async def test_the_helper_runs_on_an_old_python(tmp_path: Path) -> None:
    python = find_old_python()
    # A shell whose first Python is the old one, wherever the helper looks for it.
    shell = tmp_path / "shell"
    shell.write_text(
        "#!/bin/sh\nread -r line\n"
        f"printf '%s\\n' \"$line\" | sed 's#for p in [^;]*; do#for p in {python}; do#' >{tmp_path}/line\n"
        f'exec /bin/sh -c "$(cat {tmp_path}/line)"\n'
    )
    shell.chmod(0o755)
    (tmp_path / "work").mkdir()
    async with workspaces() as made:
        workspace = await made.open(f"exec:{shell}#{tmp_path}/work")
        version = workspace.served_by._connection.welcome.python  # type: ignore[attr-defined]
        assert version.startswith(os.path.basename(python).removeprefix("python"))
        data = os.urandom(700_000)
        await workspace.write("folder/file", data)
        assert await workspace.read("folder/file") == data
        assert (await workspace.run("cat; exit 3", stdin=b"input")).output == b"input"
        assert [match.path for match in (await workspace.search(SearchQuery("files", ".", "*"))).matches] == [
            "folder", "folder/file",
        ]  # fmt: skip


FILES = {
    "a.txt": "Hello World\nhello again\n\nlast line without end",
    "b/c.py": "def hello():\r\n    return 'wörld'\r\n# ünïcode\n",
    "b/deep/er/x.md": "tabs\tand spaces  \nx{2} (group) [set] a.b*c\n",
    "b/.hidden": "hello hidden\n",
    ".gitignore": "*.log\n/build/\n!keep.log\nb/deep/*.tmp\n",
    "one.log": "hello log\n",
    "keep.log": "hello keep\n",
    "build/out.txt": "hello build\n",
    "b/build/in.txt": "hello inner build\n",
    "b/.ignore": "skipped*\n",
    "b/skipped.txt": "hello skipped\n",
    "b/deep/a.tmp": "hello tmp\n",
    "z z/with space.txt": "say hello\n" * 5,
    "empty.txt": "",
    "binary.bin": "hello before\n\0\1 hello after\n",
    "nul-first.bin": "\0hello\n",
}
QUERIES = [
    SearchQuery("text", ".", "hello"),
    SearchQuery("text", ".", "hello", ignore_case=True),
    SearchQuery("text", ".", "HELLO", ignore_case=True, literal=True),
    SearchQuery("text", ".", "a.b*c", literal=True),
    SearchQuery("text", ".", r"x\{2\}|\(group\)"),
    SearchQuery("text", ".", r"^\s*return\b"),
    SearchQuery("text", ".", "w.rld"),
    SearchQuery("text", ".", "end$"),
    SearchQuery("text", ".", "[[:upper:]]ello"),
    SearchQuery("text", ".", "(?P<word>again)"),
    SearchQuery("text", ".", "hello", context=1),
    SearchQuery("text", ".", "hello", glob="*.txt"),
    SearchQuery("text", ".", "hello", glob="!*.txt"),
    SearchQuery("text", ".", "hello", glob="*.{py,md}"),
    SearchQuery("text", ".", "hello", glob="b/**/*.txt"),
    SearchQuery("text", "b", "hello"),
    SearchQuery("text", "a.txt", "l"),
    SearchQuery("text", "binary.bin", "hello"),
    SearchQuery("text", ".", "no such text"),
    SearchQuery("files", ".", "*"),
    SearchQuery("files", ".", "*.txt"),
    SearchQuery("files", "b", "**/*.md"),
    SearchQuery("files", ".", "b/**"),
]


async def test_a_search_finds_the_same_with_ripgrep_and_without(
    ssh: SshMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link.txt").symlink_to("a.txt")
    (tmp_path / "none").mkdir()
    found: list[list[list[Match]]] = []
    for path in (os.environ["PATH"], "/nowhere"):
        shell = tmp_path.parent / f"shell-{len(found)}"
        shell.write_text(f"#!/bin/sh\nPATH={path}\nexport PATH\nexec /bin/sh\n")
        shell.chmod(0o755)
        async with workspaces() as made:
            workspace = await made.open(f"exec:{shell}#{tmp_path}")
            assert workspace.served_by._connection.welcome.ripgrep == (path != "/nowhere")  # type: ignore[attr-defined]
            found.append([list((await workspace.search(query)).matches) for query in QUERIES])
    for query, with_ripgrep, without in zip(QUERIES, *found, strict=True):
        assert sorted(map(str, without)) == sorted(map(str, with_ripgrep)), query
        if query.what == "text":
            assert without == with_ripgrep, query


async def test_no_key_reaches_the_other_machine(ssh: SshMachine, tmp_path: Path) -> None:
    ssh.write_client("SendEnv *")
    variables = ssh.variables(ANTHROPIC_API_KEY="sk-of-mine", OPENAI_API_KEY="sk-of-mine", HARMLESS_SECRET="sk-of-mine")
    async with workspaces(variables) as made:
        workspace = await made.open(ssh.url(tmp_path))
        end = await workspace.run(
            "env; cat /proc/$PPID/environ /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sort -u"
        )
        assert b"PATH=" in end.output
        own = await workspace.run("env")
    assert b"sk-of-mine" not in own.output
    assert b"AI_AGENT=pigeon" in own.output
