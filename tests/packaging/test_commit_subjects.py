"""Subjects of commits: the hook checks a message, `.ci/run` those of new commits."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.source_tree import ROOT

SCRIPT = ROOT / ".ci" / "check-subject"
NEW, OLD = "2027-01-01T12:00:00Z", "2026-11-17T12:00:00Z"
SETTINGS = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


class Repository:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        self.git("init", "--quiet")

    def git(self, *words: str, **variables: str) -> None:
        subprocess.run(["git", *words], cwd=self._folder, env={**self._variables, **variables}, check=True)

    def commit(self, subject: str, date: str = NEW) -> None:
        words = ("commit", "--quiet", "--allow-empty", "-m", subject)
        self.git(*SETTINGS, *words, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)

    def is_accepted(self) -> bool:
        return (
            subprocess.run([SCRIPT], check=False, cwd=self._folder, env=self._variables, capture_output=True).returncode
            == 0
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_new_commits_need_a_subject_of_the_form_and_older_ones_do_not(repository: Repository) -> None:
    assert repository.is_accepted()
    repository.commit("Something old.", OLD)
    repository.commit("area: say what is done")
    assert repository.is_accepted()
    repository.commit("Something new.")
    repository.commit("area: do more")
    assert not repository.is_accepted()


def test_what_was_released_is_not_checked_again(repository: Repository) -> None:
    repository.commit("Something new.")
    repository.git("tag", "v1")
    repository.commit("area: do more")
    assert repository.is_accepted()


def test_the_hook_checks_the_first_line_of_a_message(tmp_path: Path) -> None:
    message = tmp_path / "message"
    for text, accepted in (("area: do it\n\nwhy\n", True), ("Do it\n", False), ("fixup! Do it\n", True)):
        message.write_text(text)
        assert (subprocess.run([SCRIPT, message], check=False, capture_output=True).returncode == 0) is accepted
