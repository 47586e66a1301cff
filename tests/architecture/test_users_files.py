"""Who opens a user's file: the workspace, and nobody else.

Everything that works on a project (tools, rules, context files, skills, trust, sessions, front ends) asks the workspace
or a `FileView` of it, so that the project can be on another machine. Below, each module that opens or looks at files
itself is listed, with what those files are; none is a file of the project, except where the project is on this machine
by nature.
"""

from __future__ import annotations

import ast

from house_measures import nodes_of

from support.source_tree import TREE, hold

# What works on projects.
PACKAGES = ("tools", "resources", "permissions", "trust", "session", "agent", "export", "rpc", "subagents")
OPENING = {
    *("open", "os.open", "os.stat", "os.lstat", "os.scandir", "os.listdir", "os.readlink", "os.walk", "os.replace"),
    *("os.path.exists", "os.path.lexists", "os.path.isfile", "os.path.isdir", "os.rename", "os.unlink", "os.mkdir"),
    *("os.path.realpath", "os.makedirs", "glob", "glob.glob", "shutil.copy", "shutil.rmtree"),
    *("read_whole", "read_text", "read_beginning", "open_regular", "replace_file", "resolve_and_hold"),
}
METHODS = {"read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "rglob"}
_SESSIONS = "files of sessions, which are the agent's own"
_OWN = "what the user has on this machine: the agent's folder, and paths in options"
ALLOWED: dict[str, str] = {
    "pigeon.session.history.agent_files": _SESSIONS,
    "pigeon.session.history.file_store": _SESSIONS,
    "pigeon.session.history.journal": _SESSIONS,
    "pigeon.session.history.listing": _SESSIONS,
    "pigeon.session.history.reading": _SESSIONS,
    "pigeon.session.history.repository": "the same, and whether the folder of a session of this machine exists",
    "pigeon.session.history.session_file": _SESSIONS,
    "pigeon.session.history.session_folders": _SESSIONS,
    "pigeon.session.history.stored_repository": "whether the folder of a session of this machine exists",
    "pigeon.session.history.text_search": _SESSIONS,
    "pigeon.session.history.trash": _SESSIONS,
    "pigeon.session.host.host_services": "the folders of an editor on this machine",
    "pigeon.resources.resources": _OWN,
    "pigeon.resources.roots": _OWN,
    "pigeon.trust.decision": "the user's own skills, which are no project's",
    "pigeon.trust.trust_file": "the decisions, and folders of this machine",
    "pigeon.tools.file_access": "text that an editor on this machine has unsaved",
    "pigeon.tools.background_commands": "the outputs of commands, which are kept here",
    "pigeon.export.html": "pages, which are written on this machine",
    "pigeon.export.page_writer": "pages, which are written on this machine",
    "pigeon.permissions.gate": "how a path of this machine is shown",
    "pigeon.subagents.tree": "worktrees, which are only made on this machine",
    "pigeon.subagents.worktrees": "worktrees, which are only made on this machine",
    "pigeon.subagents.conversation_agents": "worktrees, which are only made on this machine",
}


def test_nothing_but_the_workspace_opens_a_users_file() -> None:
    opening = {
        module
        for module in TREE.modules
        if module.split(".")[1:2] and module.split(".")[1] in PACKAGES and _opens_files(module)
    }
    hold(sorted(opening), ALLOWED)


def _opens_files(module: str) -> bool:
    for node in nodes_of(TREE.tree(module)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in OPENING or (isinstance(node.func, ast.Attribute) and _is_path_method(node.func)):
                return True
        # Handed over as a function: `filter(os.path.lexists, ...)`.
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in OPENING:
            return True
    return False


def _is_path_method(function: ast.Attribute) -> bool:
    """A method of `pathlib.Path`, and not of a view."""
    return function.attr in METHODS and not ast.unparse(function.value).endswith("view")
