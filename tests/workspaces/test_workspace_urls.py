from __future__ import annotations

import pytest

from pigeon.workspaces.errors import WrongWorkspace
from pigeon.workspaces.url import parse_workspace_url


def parts_of(url: str) -> tuple[object, ...]:
    read = parse_workspace_url(url)
    return read.kind, read.name, read.path, read.user, read.port, read.argv


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("ssh://host/srv/app", ("ssh", "host", "/srv/app", None, None, ())),
        ("ssh://me@build-1.lan:2222/home/me/", ("ssh", "build-1.lan", "/home/me", "me", 2222, ())),
        ("ssh://me@[::1]:22/x", ("ssh", "::1", "/x", "me", 22, ())),
        ("ssh://host/with%20space", ("ssh", "host", "/with space", None, None, ())),
        ("docker://web_1/app", ("docker", "web_1", "/app", None, None, ())),
        ("podman://abc123/", ("podman", "abc123", "/", None, None, ())),
        ("exec:in -t 'a b' sh#/app", ("exec", "in -t 'a b' sh", "/app", None, None, ("in", "-t", "a b", "sh"))),
        ("exec:sh -c 'id #1'#/a%20b", ("exec", "sh -c 'id #1'", "/a%20b", None, None, ("sh", "-c", "id #1"))),
        ("host:/work/app", ("host", "host", "/work/app", None, None, ())),
    ],
)  # fmt: skip
def test_a_url_names_a_machine_and_a_folder(url: str, parts: tuple[object, ...]) -> None:
    assert parts_of(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        *("ssh://", "ssh:///path", "ssh://host", "ssh:host/path", "ssh://-oProxyCommand=x/path", "ssh://u@-x/path"),
        *("ssh://user:secret@host/path", "ssh://host:0/path", "ssh://host:99999/path", "ssh://host:x/path", "ssh://-u@h/p"),
        *("docker://", "docker:///x", "docker://-v/x", "podman://c", "podman://a b/x", "docker://a:b/x", "docker://u@c/x"),
        *("exec:#/path", "exec:sh", "exec:sh#path", "exec:-sh#/path", "exec:sh '#/path", "exec:''#/p"),
        *("host:", "host:path", "ftp://host/path", "/path", "", "ssh://host/a\nb", "ssh://host\0/a", "SSH://host/a"),
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_meant_is_refused_by_name(url: str) -> None:
    with pytest.raises(WrongWorkspace) as refusal:
        parse_workspace_url(url)
    assert "workspace" in str(refusal.value)


def test_a_password_in_a_url_is_not_repeated() -> None:
    for url in ("ssh://user:hunter2@host/path", "ftp://user:hunter2@host/path", "docker://user:hunter2@x/path"):
        with pytest.raises(WrongWorkspace) as refusal:
            parse_workspace_url(url)
        assert "hunter2" not in str(refusal.value)
