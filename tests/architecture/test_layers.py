"""Which package may know which: the import edges of the source, read from its syntax trees."""

from __future__ import annotations

import re

from house_measures import PACKAGE, package_of

from support.source_tree import ROOT, TREE, hold

# What a package may import besides itself: another package, or one module of it (`package.module`).
EDGES: dict[str, set[str]] = {
    "wire": set(),
    "system": {"wire.errors"},
    "dialects": {"wire"},
    "transport": set(),
    "workspaces": {"wire", "system"},
    "config": {"wire", "system"},
    "resources": {"wire", "system", "config", "agent.tool_facts"},
    "agent": {"wire", "system.expressions", "system.held_paths", "system.paths"},
    "secrets": {"wire", "system.process.variables"},
    "trust": {"wire", "system", "config", "session", "sandbox", "workspaces"},
    "sandbox": {"wire", "system", "config"},
    "permissions": {
        *("wire", "system", "agent", "config", "session", "tools.catalog", "tools.server_tools", "workspaces"),
    },
    "providers": {"wire", "system", "agent", "secrets"},
    "tools": {"wire", "system", "agent", "sandbox", "config", "secrets", "session", "workspaces"},
    "store": {"wire", "system"},
    "session": {"agent", "wire", "store", "system", "workspaces"},
    "rpc": {"session", "dialects", "transport", "wire"},
    "subagents": {
        *("agent", "config", "permissions", "resources", "sandbox", "secrets", "session", "system", "tools", "wire"),
        "workspaces",
    },
    "checkpoints": {"session", "wire", "system", "tools.editing.changed_lines", "tools.editing.diff"},
    "mcp": {"session", "agent", "config", "tools.server_tools", "wire", "system"},
    "extensions": {"session", "agent", "wire", "system", "providers", "workspaces.workspace"},
    "export": {
        "tools.catalog",
        "tools.editing.changed_lines",
        "tools.editing.diff",
        "providers.explanations",
        "session",
        "secrets",
        "wire",
        "system",
    },
    "frontends": {
        "app",
        "config",
        "dialects",
        "providers",
        "resources",
        "secrets",
        "tools.images.header",
        "transport",
        "wire",
        "system",
    },
    "frontends.stdio": {"dialects", "frontends", "rpc", "sdk", "transport", "wire", "system"},
    "frontends.print": {
        "agent.output_schema",
        "dialects",
        "frontends",
        "rpc",
        "sdk",
        "session",
        "transport",
        "wire",
        "system",
    },
    "frontends.serve": {
        *("providers.anthropic.api", "providers.demo.api", "providers.openai_chat.api"),
        *("app", "config.paths", "export.style", "frontends", "providers.http.certificates"),
        *("providers.local_models", "rpc", "session", "dialects", "secrets", "tools.catalog", "transport"),
        *("store.addresses", "trust.decision", "wire", "system", "workspaces.errors", "workspaces.url"),
    },
    "frontends.batch": {
        *("app", "agent.inference", "agent.output_schema", "export.escaping", "export.style", "secrets.redactor"),
        *(
            "providers.local_models",
            "providers.scripted",
            "providers.http.certificates",
            "rpc.in_process",
            "sdk",
            "session.history.session_folders",
        ),
        *("export.page_writer", "frontends", "transport", "sandbox.written_folders", "wire", "system"),
        *("workspaces.errors", "workspaces.url"),
    },
    "frontends.terminal": {
        *("app.models", "frontends", "providers.demo.api", "sdk", "session.history.session_folders"),
        *("providers.explanations", "sandbox.written_folders", "tools.catalog", "transport", "wire", "system"),
    },
    "frontends.acp": {
        *("app", "config.credentials", "frontends", "providers.catalog.built_in", "rpc", "sdk", "secrets.redactor"),
        *("agent.tool_facts", "tools.catalog", "transport", "wire", "system"),
    },
    "sdk": {
        *("app", "rpc", "extensions.public.tool_def", "store.protocol", "tools.images.header", "transport", "wire"),
        *("system", "workspaces.workspace"),
    },
    "testing": {"providers.scripted", "store.checks", "wire", "workspaces"},
}
UNBOUND = {"app", "cli", ""}  # they put the pieces together; "" is the package itself and its `__main__`

# The modules of `agent` that the packages beside it may import: what it needs from them, and what they say to
# each other. The loop itself is the business of `session`.
AGENT_INTERFACE = {
    *("agent.interfaces", "agent.inference", "agent.schema_check", "agent.schema_patterns", "agent.tool_facts"),
}
BESIDE_AGENT = {"tools", "permissions", "providers", "extensions"}

# "module -> imported module": reason
EXCEPTIONS: dict[str, str] = {
    "pigeon.sdk.agent -> pigeon": "the version is there, and nothing else is loaded by it",
    "pigeon.frontends.serve.workers.worker -> pigeon": "the version",
    "pigeon.frontends.serve.client_session -> pigeon": "the version",
    "pigeon.frontends.serve.http.api -> pigeon": "the version",
    "pigeon.frontends.acp.command -> pigeon": "the version",
    "pigeon.frontends.print.one_answer -> pigeon": "the version",
    "pigeon.frontends.starting -> pigeon": "the version",
    "pigeon.frontends.stdio.attach -> pigeon": "the version",
    "pigeon.frontends.terminal.chat_mode -> pigeon": "the version",
    "pigeon.export.page_writer -> pigeon": "the version",
    "pigeon.providers.recording.agent_recordings -> pigeon": "the version",
}


def test_every_package_has_its_edges() -> None:
    packages = {package_of(module) for module in TREE.modules}
    assert packages == set(EDGES) | UNBOUND, "a new package says in EDGES what it may import"


def test_the_architecture_page_lists_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("## Packages")[2].partition("\n## ")[0]
    shown = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    assert shown == set(EDGES) | UNBOUND - {""}


def test_a_module_imports_only_what_its_package_may_know() -> None:
    wrong = [
        f"{module} -> {other}"
        for module in TREE.modules
        if package_of(module) not in UNBOUND
        for other in TREE.imports(module)
        if not _may_import(package_of(module), other)
    ]
    hold(wrong, EXCEPTIONS)


def test_every_allowed_edge_is_used() -> None:
    unused = [
        f"{package} -> {edge}"
        for package, edges in EDGES.items()
        for edge in edges
        if not any(_is_below(other, edge) for other in _imported_by_package(package))
    ]
    assert unused == []


def test_every_module_of_the_agents_interface_is_used_beside_it() -> None:
    imported = {other for package in BESIDE_AGENT for other in _imported_by_package(package)}
    assert {other.removeprefix(f"{PACKAGE}.") for other in imported} >= AGENT_INTERFACE


def test_only_the_package_itself_knows_the_command_line() -> None:
    knowing = [module for module in TREE.modules if package_of(module) not in ("cli", "") and _knows(module, "cli")]
    assert knowing == []


def test_a_front_end_imports_nothing_of_another() -> None:
    """What two of them need is flat in `frontends`."""
    wrong = [
        f"{module} -> {other}"
        for module in TREE.modules
        if package_of(module).startswith("frontends")
        for other in TREE.imports(module)
        if package_of(other).startswith("frontends.") and package_of(other) != package_of(module)
    ]
    assert wrong == []


def test_importing_the_package_itself_imports_nothing_of_it() -> None:
    assert TREE.early_imports(PACKAGE) == []


def test_no_two_modules_need_each_other() -> None:
    assert TREE.cycles() == []


def _may_import(package: str, other: str) -> bool:
    if package_of(other) == package:
        return True
    if package in BESIDE_AGENT and package_of(other) == "agent":
        return any(_is_below(other, module) for module in AGENT_INTERFACE)
    return any(_is_below(other, edge) for edge in EDGES[package])


def _is_below(module: str, edge: str) -> bool:
    return f"{module}.".startswith(f"{PACKAGE}.{edge}.")


def _imported_by_package(package: str) -> set[str]:
    return {other for module in TREE.modules if package_of(module) == package for other in TREE.imports(module)}


def _knows(module: str, package: str) -> bool:
    return any(package_of(other) == package for other in TREE.imports(module))
