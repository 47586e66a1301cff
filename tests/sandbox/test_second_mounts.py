"""Secrets that are seen in more than one place, because a disk is mounted twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pigeon.sandbox.policy import secret_places
from pigeon.sandbox.second_mounts import other_places, parse_mounts


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("home/me/.ssh/keys", "host/home/me/.ssh/keys", "box/.ssh", "my keys", "other/.ssh"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_what_is_hidden_is_found_where_it_is_mounted_again(here: Path) -> None:
    rows = [
        ("8:1", "/", str(here)),
        ("8:1", "/", f"{here}/host"),
        ("8:1", "/home/me", f"{here}/box"),
        ("8:1", "/home/me/.ssh/keys", f"{here}/my\\040keys"),
        ("8:2", "/", f"{here}/other"),
    ]
    text = "".join(f"1 0 {disk} {shown} {place} rw - ext4 x rw\n" for disk, shown, place in rows)
    found = other_places([f"{here}/home/me/.ssh"], parse_mounts(text))
    assert [os.path.relpath(path, here) for path in found] == ["host/home/me/.ssh", "box/.ssh", "my keys"]


def test_nothing_is_found_where_nothing_is_mounted_twice(here: Path) -> None:
    assert other_places([f"{here}/home/me/.ssh"], parse_mounts(f"1 0 8:1 / {here} rw - ext4 x rw\nshort line\n")) == []


def test_variables_say_where_secrets_are() -> None:
    variables = {"KUBECONFIG": "/k/one:/k/two", "CARGO_HOME": "/cargo", "XDG_CONFIG_HOME": "/cfg", "NETRC": "relative"}
    variables |= {"HISTFILE": "/dev/null", "DOCKER_CONFIG": "/home/me"}
    found = secret_places(["/home/me"], "/agent", variables)
    assert {"/k/one", "/k/two", "/cargo/credentials.toml", "/cfg/gh", "/cfg/gcloud"} <= set(found)
    assert not {"/dev/null", "/home/me", "relative"} & set(found)
