"""Every command has its scope, and every path in one is checked."""

from __future__ import annotations

import pytest

from pigeon.frontends.serve.scopes import NEEDED, OUTPUT_PATHS, SESSION_PATHS, needed_scope
from pigeon.wire.commands import ALL, BY_NAME, OLD_NAMES


def test_every_command_has_a_scope_and_nothing_else_does() -> None:
    assert set(NEEDED) == set(BY_NAME)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_an_old_name_needs_what_the_new_one_needs(old: str) -> None:
    assert needed_scope(old) == needed_scope(OLD_NAMES[old])


def test_what_is_not_known_is_for_admins() -> None:
    assert needed_scope("not_a_command") == "admin"


def test_what_a_watcher_may_send_shows_something_or_is_about_its_connection() -> None:
    reading = {name for name, scope in NEEDED.items() if scope == "read"}
    beginnings = ("get_", "list_", "find_", "render_")
    assert {name for name in reading if not name.startswith(beginnings)} == {
        "hello",
        "negotiate_protocol",
        "set_event_filter",
    }


def test_every_member_of_a_command_that_names_a_file_is_checked() -> None:
    words = ("path", "dir", "file", "parent_session")
    named = {
        (name, field)
        for name, command in BY_NAME.items()
        for field in command.__struct_fields__
        if any(word in field for word in words)
    }
    checked = {**SESSION_PATHS, **OUTPUT_PATHS}
    # A name that a session has for what was changed, and what a host offers to do: no file is opened by them.
    shown = {("get_changes", "path"), ("set_host_services", "read_files"), ("set_host_services", "write_files")}
    assert len(ALL) == len(BY_NAME)
    assert {(name, _camel(field)) for name, field in named - shown} == set(checked.items())


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
