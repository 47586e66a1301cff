"""Which room may know which: the import edges of the source, read from its syntax trees."""

from __future__ import annotations

import re

from house_measures import PACKAGE, room_of

from fakes.source_tree import ROOT, TREE, hold

# What a room may import besides itself: another room, or one module of it (`room.module`).
EDGES: dict[str, set[str]] = {
    "wire": set(),
    "system": {"wire.errors"},
    "dialects": {"wire"},
    "transport": set(),
    "config": {"wire", "system"},
    "resources": {"wire", "system", "config"},
    "agent": {"wire", "system.expressions", "system.paths"},
    "providers": {"wire", "system", "agent"},
    "tools": {"wire", "system", "agent"},
    "guard": {"wire", "system", "agent"},
    "session": {"agent", "wire", "system"},
    "rpc": {"session", "dialects", "transport", "wire"},
    "mcp": {"session", "agent", "config", "wire", "system"},
    "extensions": {"session", "agent", "wire", "system"},
    "export": {"tools.editing.changed_lines", "tools.editing.diff", "wire", "system"},
    "serve": {"app", "export.style", "rpc", "session", "dialects", "guard", "transport", "wire", "system"},
    "batches": {
        *("app", "agent.inference", "agent.output_schema", "export.escaping", "export.style", "guard.secrets"),
        *("providers.scripted.script", "rpc.in_process", "sdk", "session.history.repository", "wire", "system"),
    },
    "terminal": {"sdk", "wire", "system"},
    "acp": {"sdk", "transport", "wire", "system"},
    "sdk": {"app", "rpc", "extensions.public.tool_def", "tools.images.header", "transport", "wire", "system"},
    "testing": {"providers.scripted.script", "wire"},
}
UNBOUND = {"app", "cli", ""}  # they put the pieces together; "" is the package itself and its `__main__`

# The modules of `agent` that the rooms beside it may import: what it needs from them, and what they say to each other.
# The loop itself is the business of `session`.
AGENT_INTERFACE = {"agent.interfaces", "agent.inference", "agent.scope"}
BESIDE_AGENT = {"tools", "guard", "providers", "extensions"}

# "module -> imported module": reason
EXCEPTIONS: dict[str, str] = {
    "pigeon.sdk.agent -> pigeon": "the version is there, and nothing else is loaded by it",
    "pigeon.serve.worker -> pigeon": "the version",
    "pigeon.serve.client_session -> pigeon": "the version",
    "pigeon.serve.http.api -> pigeon": "the version",
}


def test_every_room_has_its_edges() -> None:
    rooms = {room_of(module) for module in TREE.modules}
    assert rooms == set(EDGES) | UNBOUND, "a new room says in EDGES what it may import"


def test_the_architecture_page_shows_every_room_with_its_edges() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .+? \| (.+) \|$", page, re.MULTILINE)
    shown = {room: set(re.findall(r"`(\w+)`", allowed)) for room, allowed in rows}
    assert set(shown) == set(EDGES) | UNBOUND - {""}
    edges = {room: {edge.partition(".")[0] for edge in edges} for room, edges in EDGES.items()}
    assert {room: shown[room] for room in edges} == edges


def test_the_picture_of_the_architecture_page_shows_the_edges_between_upper_rooms() -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("flowchart TD\n")[1].split("```")[0]
    arrows = [line.strip().split(" --> ") for line in picture.splitlines() if "base" not in line]
    shown = {(one, other) for left, right in arrows for one in left.split(" & ") for other in right.split(" & ")}
    edges = {(room, edge.partition(".")[0]) for room, edges in EDGES.items() for edge in edges}
    edges = {(room, edge) for room, edge in edges if edge not in ("wire", "system")}
    assert {(one, other) for one, other in shown if one in EDGES} == edges


def test_a_module_imports_only_what_its_room_may_know() -> None:
    wrong = [
        f"{module} -> {other}"
        for module in TREE.modules
        if room_of(module) not in UNBOUND
        for other in TREE.imports(module)
        if not _may_import(room_of(module), other)
    ]
    hold(wrong, EXCEPTIONS)


def test_every_allowed_edge_is_used() -> None:
    unused = [
        f"{room} -> {edge}"
        for room, edges in EDGES.items()
        for edge in edges
        if not any(_is_below(other, edge) for other in _imported_by_room(room))
    ]
    assert unused == []


def test_every_module_of_the_agents_interface_is_used_beside_it() -> None:
    imported = {other for room in BESIDE_AGENT for other in _imported_by_room(room)}
    assert {other.removeprefix(f"{PACKAGE}.") for other in imported} >= AGENT_INTERFACE


def test_only_the_package_itself_knows_the_command_line() -> None:
    assert not [module for module in TREE.modules if room_of(module) not in ("cli", "") and _knows(module, "cli")]


def test_importing_the_package_itself_imports_nothing_of_it() -> None:
    assert TREE.early_imports(PACKAGE) == []


def test_no_two_modules_need_each_other() -> None:
    assert TREE.cycles() == []


def _may_import(room: str, other: str) -> bool:
    if room_of(other) == room:
        return True
    if room in BESIDE_AGENT and room_of(other) == "agent":
        return any(_is_below(other, module) for module in AGENT_INTERFACE)
    return any(_is_below(other, edge) for edge in EDGES[room])


def _is_below(module: str, edge: str) -> bool:
    return f"{module}.".startswith(f"{PACKAGE}.{edge}.")


def _imported_by_room(room: str) -> set[str]:
    return {other for module in TREE.modules if room_of(module) == room for other in TREE.imports(module)}


def _knows(module: str, room: str) -> bool:
    return any(room_of(other) == room for other in TREE.imports(module))
