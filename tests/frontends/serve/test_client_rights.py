"""Every command declares its scope, and every path in one is checked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pigeon.frontends.serve.client_rights import SCOPES, check_command, has_needed_scope
from pigeon.wire.commands import ALL, NAMES, READING_NAMES, Command, DeleteSession, ExportHtml, NewSession, Prompt
from pigeon.wire.errors import Refusal

# What names no file that is opened: what was changed in a session, and what a host offers to do.
NO_FILES = {
    *(("get_changes", "path"), ("set_host_services", "read_files"), ("set_host_services", "write_files")),
    *(("undo", "files"), ("preview_undo", "files"), ("host_service_result", "paths")),
}


@pytest.mark.parametrize("command", ALL, ids=NAMES.get)
def test_every_command_declares_its_scope_itself(command: type[Command]) -> None:
    assert not hasattr(Command, "required_scope")
    assert command.required_scope in SCOPES


def test_what_a_watcher_may_send_shows_something_or_is_about_its_connection() -> None:
    watching = {NAMES[command] for command in ALL if command.required_scope == "read"}
    assert watching - READING_NAMES == {
        "hello",
        "negotiate_protocol",
        "set_event_filter",
    }


def test_every_field_of_a_command_that_names_a_file_is_declared_as_a_path() -> None:
    words = ("path", "dir", "file", "parent_session")
    named = {
        (NAMES[command], field)
        for command in ALL
        for field in command.__struct_fields__
        if any(word in field for word in words)
    }
    declared = {(NAMES[command], field) for command in ALL for field in (*command.session_paths, *command.output_paths)}
    assert named - NO_FILES == declared


def test_each_scope_includes_those_before_it() -> None:
    assert [(one, other) for one in SCOPES for other in SCOPES if has_needed_scope(one, other)] == [
        ("read", "read"),
        ("talk", "read"),
        ("talk", "talk"),
        ("admin", "read"),
        ("admin", "talk"),
        ("admin", "admin"),
    ]


def test_a_command_beyond_the_scope_is_refused() -> None:
    with pytest.raises(Refusal, match="prompt needs the scope talk, and this token has the scope read"):
        check_command(Prompt(message="hi"), "read", _roots(), "/here")


def test_a_command_goes_on_with_the_paths_that_were_checked() -> None:
    deleted = check_command(DeleteSession(session_path="a.jsonl"), "admin", _roots(), "/here")
    exported = check_command(ExportHtml(output_path="a.html"), "admin", _roots(), "/here")
    begun = check_command(NewSession(), "talk", _roots(), "/here")
    assert deleted == DeleteSession(session_path="session:/here/a.jsonl")
    assert exported == ExportHtml(output_path="output:/here/a.html")
    assert begun == NewSession()


def _roots() -> Any:
    return SimpleNamespace(
        resolve_session_path=lambda path, cwd: f"session:{cwd}/{path}",
        resolve_output_path=lambda path, cwd: f"output:{cwd}/{path}",
    )
