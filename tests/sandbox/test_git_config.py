"""The configuration of git, read as git itself reads it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.sandbox.git_config import GitConfigReader, parse_settings
from pigeon.sandbox.survey import git_settings_in, shared_git_files

PIECES = [
    *("[core]", '[a "b"]', '[a "b\\"]"]', "[x.Y]", "[ core ]", "key", "Key-2", "=", " = ", '"', "\\\\", '\\"', "\\n"),
    *("\\\n", "\n", "\n", " ", "\t", "#", ";", "value", "a/b", "~", "]", "[", "\r\n", "\ufeff"),
]

TEXTS = [
    "[core]\n\thooksPath = a b  \n",
    "[core] hooksPath=x\n key\n",
    '[a "B c"] k = "x ; y" # z\n[A.B]k=1;2\n',
    "[a]k = one\\\n two\\\n # three\nl = 4\n",
    '[a]\r\n k = "tab\\there" and \\"quotes\\" \\\\\r\n',
    '[a]k=" lead"mid" trail "  \n[b]\n',
    "; remark\n# remark\n[a] # remark\n k = # nothing\n m",
    '[includeIf "gitdir:~/x/"]\n  path = "~/y"\n[url "a=b"]\n insteadOf = c\n',
]


def as_git_reads(text: str, folder: Path) -> list[tuple[str, str]] | None:
    """What git finds in a text, with keys as ours; none if it takes it for wrong."""
    file = folder / "config"
    file.write_bytes(text.encode())
    ran = subprocess.run(["git", "config", "-z", "--list", "-f", str(file)], check=False, capture_output=True)
    if ran.returncode != 0:
        return None
    pairs = [entry.partition("\n") for entry in ran.stdout.decode().split("\0")[:-1]]
    return [(f"{key.partition('.')[0]}.{key.rpartition('.')[2]}", value or "") for key, _, value in pairs]


@pytest.mark.parametrize("text", TEXTS)
def test_values_are_those_that_git_finds(text: str, tmp_path: Path) -> None:
    expected = as_git_reads(text, tmp_path)
    assert expected is not None
    found = [(one.key, "" if one.value == "true" else one.value) for one in parse_settings(text)]
    assert found == [(key, "" if value == "true" else value) for key, value in expected]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert all("." in one.key for one in parse_settings(text))


def test_files_are_followed_that_are_included_under_any_condition_and_each_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_text('[include] path = two\n[includeIf "gitdir:/nowhere"] path = ~/three')
    (tmp_path / "two").write_text("[include] path = one\n[core] hooksPath = x")
    reader = GitConfigReader([str(tmp_path)])
    found = list(reader.read_with_includes([str(tmp_path / "one")]))
    assert [os.path.basename(file.path) for file in found] == ["one", "two", "three"]
    assert found[1].settings[-1].value == "x"


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    file, reader = tmp_path / "config", GitConfigReader()
    file.write_text("[a] b = 1")
    assert [one.value for one in next(reader.read_with_includes([str(file)])).settings] == ["1"]
    file.write_text("[a] b = 22")
    assert [one.value for one in next(reader.read_with_includes([str(file)])).settings] == ["22"]


def test_variables_name_files_and_settings_too() -> None:
    variables = {"GIT_CONFIG_GLOBAL": "/g", "XDG_CONFIG_HOME": "/x", "GIT_CONFIG_COUNT": "1"}
    variables |= {"GIT_CONFIG_KEY_0": "Filter.A.b.Clean", "GIT_CONFIG_VALUE_0": "c"}
    assert {"/g", "/x/git/config", "/home/.gitconfig", "/etc/gitconfig"} <= set(shared_git_files(["/home"], variables))
    assert [(one.key, one.value) for one in git_settings_in(variables)] == [("filter.clean", "c")]
