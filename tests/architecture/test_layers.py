"""Which package may know which: the import edges of the source, read from its syntax trees."""

from __future__ import annotations

import re

from house_measures import PACKAGE, package_of

from fakes.source_tree import ROOT, TREE, hold

# What a package may import besides itself: another package, or one module of it (`package.module`).
EDGES: dict[str, set[str]] = {
    "wire": set(),
    "system": {"wire.errors"},
    "dialects": {"wire"},
    "transport": set(),
    "config": {"wire", "system"},
    "resources": {"wire", "system", "config"},
    "agent": {"wire", "system.expressions", "system.paths"},
    "secrets": {"wire"},
    "trust": {"wire", "system", "config", "session", "sandbox"},
    "sandbox": {"wire", "system", "config"},
    "permissions": {"wire", "system", "agent", "config", "session"},
    "providers": {"wire", "system", "agent", "secrets"},
    "tools": {"wire", "system", "agent", "sandbox", "config", "secrets", "session"},
    "session": {"agent", "wire", "system"},
    "rpc": {"session", "dialects", "transport", "wire"},
    "mcp": {"session", "agent", "config", "wire", "system"},
    "extensions": {"session", "agent", "wire", "system", "providers"},
    "export": {"tools.editing.changed_lines", "tools.editing.diff", "session", "secrets", "wire", "system"},
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
    "frontends.stdio": {"app", "dialects", "frontends", "rpc", "sdk", "transport", "wire", "system"},
    "frontends.print": {
        "app",
        "agent.output_schema",
        "dialects",
        "frontends",
        "rpc",
        "sdk",
        "session",
        "transport",
        "wire",
    },
    "frontends.serve": {
        *("app", "export.style", "frontends", "providers.http.client", "rpc", "session", "dialects", "secrets"),
        *("transport", "wire", "system"),
    },
    "frontends.batch": {
        *("app", "agent.inference", "agent.output_schema", "export.escaping", "export.style", "secrets.redactor"),
        *("providers.scripted.script", "providers.http.client", "rpc.in_process", "sdk", "session.history.file_store"),
        *("frontends", "transport", "wire", "system"),
    },
    "frontends.terminal": {"app", "frontends", "sdk", "session.history.file_store", "transport", "wire", "system"},
    "frontends.acp": {
        *("app", "config.credentials", "frontends", "providers.catalog.built_in", "rpc", "sdk", "secrets.redactor"),
        *("transport", "wire", "system"),
    },
    "sdk": {"app", "rpc", "extensions.public.tool_def", "tools.images.header", "transport", "wire", "system"},
    "testing": {"providers.scripted.script", "wire"},
}
UNBOUND = {"app", "cli", ""}  # they put the pieces together; "" is the package itself and its `__main__`

# The modules of `agent` that the packages beside it may import: what it needs from them, and what they say to
# each other. The loop itself is the business of `session`.
AGENT_INTERFACE = {"agent.interfaces", "agent.inference", "agent.scope"}
BESIDE_AGENT = {"tools", "permissions", "providers", "extensions"}

# "module -> imported module": reason
EXCEPTIONS: dict[str, str] = {
    "pigeon.sdk.agent -> pigeon": "the version is there, and nothing else is loaded by it",
    "pigeon.frontends.serve.worker -> pigeon": "the version",
    "pigeon.frontends.serve.client_session -> pigeon": "the version",
    "pigeon.frontends.serve.http.api -> pigeon": "the version",
}

# Edges that are still to go.
KNOWN = (
    "pigeon.export.page_writer -> pigeon",
    "pigeon.export.page_writer -> pigeon.app.environment",
    "pigeon.export.page_writer -> pigeon.app.models",
    "pigeon.export.page_writer -> pigeon.config.layers",
    "pigeon.extensions.setup -> pigeon.app.environment",
    "pigeon.extensions.setup -> pigeon.app.options",
    "pigeon.extensions.setup -> pigeon.app.reports",
    "pigeon.frontends.acp.command -> pigeon",
    "pigeon.frontends.acp.command -> pigeon.cli.args",
    "pigeon.frontends.agent_words -> pigeon.cli.args",
    "pigeon.frontends.batch.task_run -> pigeon.export.page_writer",
    "pigeon.frontends.call -> pigeon.cli.args",
    "pigeon.frontends.print.json_mode -> pigeon.cli.args",
    "pigeon.frontends.print.one_answer -> pigeon",
    "pigeon.frontends.print.one_answer -> pigeon.cli.args",
    "pigeon.frontends.printing -> pigeon.frontends.terminal.content.cleaning",
    "pigeon.frontends.prompt_input -> pigeon.cli.args",
    "pigeon.frontends.starting -> pigeon",
    "pigeon.frontends.starting -> pigeon.cli.args",
    "pigeon.frontends.stdio.attach -> pigeon",
    "pigeon.frontends.stdio.rpc_mode -> pigeon.cli.args",
    "pigeon.frontends.terminal.chat_mode -> pigeon",
    "pigeon.frontends.terminal.chat_mode -> pigeon.cli.args",
    "pigeon.permissions.control -> pigeon.app.environment",
    "pigeon.permissions.control -> pigeon.app.options",
    "pigeon.permissions.control -> pigeon.app.reports",
    "pigeon.providers.recording.setup -> pigeon",
    "pigeon.providers.recording.setup -> pigeon.app.environment",
    "pigeon.providers.recording.setup -> pigeon.app.options",
    "pigeon.providers.recording.setup -> pigeon.session.model_choice",
    "pigeon.sandbox.control -> pigeon.app.environment",
    "pigeon.sandbox.control -> pigeon.app.options",
    "pigeon.sandbox.control -> pigeon.extensions.runtime.discovery",
    "pigeon.sandbox.control -> pigeon.trust.trust_file",
    "pigeon.system.process.start -> pigeon.sandbox.wall",
    "pigeon.system.process.supervised -> pigeon.sandbox.wall",
    "pigeon.system.shell.shell -> pigeon.sandbox.policy",
    "pigeon.tools.setup -> pigeon.app.environment",
    "pigeon.tools.setup -> pigeon.app.options",
    "pigeon.trust.control -> pigeon.app.options",
    "pigeon.trust.control -> pigeon.extensions.public.results",
)


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
    hold(wrong, EXCEPTIONS, KNOWN)


def test_every_allowed_edge_is_used() -> None:
    unused = [
        f"{package} -> {edge}"
        for package, edges in EDGES.items()
        for edge in edges
        if not any(_is_below(other, edge) for other in _imported_by_room(package))
    ]
    assert unused == []


def test_every_module_of_the_agents_interface_is_used_beside_it() -> None:
    imported = {other for package in BESIDE_AGENT for other in _imported_by_room(package)}
    assert {other.removeprefix(f"{PACKAGE}.") for other in imported} >= AGENT_INTERFACE


def test_only_the_package_itself_knows_the_command_line() -> None:
    knowing = [module for module in TREE.modules if package_of(module) not in ("cli", "") and _knows(module, "cli")]
    hold(knowing, {}, {one.partition(" ->")[0] for one in KNOWN if one.endswith("pigeon.cli.args")})


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


def _imported_by_room(package: str) -> set[str]:
    return {other for module in TREE.modules if package_of(module) == package for other in TREE.imports(module)}


def _knows(module: str, package: str) -> bool:
    return any(package_of(other) == package for other in TREE.imports(module))
