"""Which room may know which: the import edges of the source, read from its syntax trees."""

from __future__ import annotations

import pytest

from fakes.source_tree import imports_of, modules, room_of

ROOMS = {
    "wire": set(),
    "dialects": {"wire"},
    "transport": {"wire", "system"},
    "system": {"wire"},
    "config": {"wire", "system"},
    "resources": {"wire", "system", "config"},
    "agent": {"wire"},
    "providers": {"wire", "system", "agent"},
    "tools": {"wire", "system", "agent"},
    "guard": {"wire", "system", "agent"},
    "session": {"agent", "wire", "system", "config"},
    "rpc": {"session", "dialects", "transport", "wire"},
    "extensions": {"session", "agent", "wire", "config"},
    "export": {"wire", "system"},
}
UNBOUND = {"app", "cli", ""}  # they put the pieces together; "" is the package itself and its `__main__`

# One line per deliberate exception: (module, imported module): reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_what_its_room_may_know(module: str) -> None:
    room = room_of(module)
    if room in UNBOUND:
        return
    assert room in ROOMS, f"{room} is a new room: say in ROOMS what it may import"
    allowed = ROOMS[room] | {room}
    wrong = [
        other for other in imports_of(module) if room_of(other) not in allowed and (module, other) not in EXCEPTIONS
    ]
    assert not wrong, f"{module} must not import {', '.join(wrong)}"


def test_the_package_itself_imports_nothing() -> None:
    assert imports_of("pigeon") == []


def test_exceptions_are_still_needed() -> None:
    stale = [pair for pair in EXCEPTIONS if pair[1] not in imports_of(pair[0])]
    assert not stale
