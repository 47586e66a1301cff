"""Which scope may send which command: `read` sees, `talk` also prompts and answers questions, `admin` does everything.

Every command is listed (a test checks this); one that is not listed needs `admin`. Whatever the scope, paths in
commands must be below the roots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from pigeon.wire.base import Json
from pigeon.wire.commands import OLD_NAMES
from pigeon.wire.errors import Refusal

if TYPE_CHECKING:
    from pigeon.frontends.serve.conversations import Conversations

Scope = Literal["read", "talk", "admin"]
# In ascending order: each includes those before it.
SCOPES: tuple[Scope, ...] = get_args(Scope)
# Commands that only show something, or concern the client's own connection.
_READ = (
    "hello",
    "set_event_filter",
    "negotiate_protocol",
    "get_state",
    "get_messages",
    "get_messages_page",
    "get_last_assistant_text",
    "get_session_stats",
    "get_commands",
    "get_available_commands",
    "get_available_models",
    "get_available_thinking_levels",
    "get_limits",
    "get_permissions",
    "get_fork_messages",
    "get_branch_messages",
    "get_entries",
    "get_tree",
    "get_trust",
    "get_mcp_servers",
    "get_mcp_resources",
    "get_integrations",
    "get_html",
    "render_html",
    "find_text",
    "get_branches",
    "get_changes",
    "get_subagents",
    "get_subagent_messages",
    "get_login_providers",
    "list_sessions",
)
# Commands that are part of a conversation with the agent, which asks for approval where its rules say so.
_TALK = (
    "find_files",
    "prompt",
    "complete_mcp",
    "steer",
    "follow_up",
    "abort_and_prompt",
    "abort",
    "clear_queue",
    "remove_queued",
    "edit_queued",
    "promote_queued",
    "set_model",
    "cycle_model",
    "set_thinking_level",
    "cycle_thinking_level",
    "set_fast_mode",
    "set_steering_mode",
    "set_follow_up_mode",
    "set_interrupt_mode",
    "set_locale",
    "set_auto_compaction",
    "set_auto_retry",
    "set_subagent_subscription",
    "abort_retry",
    "compact",
    "handoff",
    "new_session",
    "fork",
    "branch",
    "clone",
    "navigate_tree",
    "set_session_name",
    "set_todos",
    "extension_ui_response",
)
# Commands that bypass approval, change what the agent may do, or reach beyond the conversation.
_ADMIN = (
    "bash",
    "abort_bash",
    "set_permissions",
    "set_approval_mode",
    "delete_session",
    "set_limits",
    "set_trust",
    "set_host_tools",
    "set_mcp_servers",
    "connect_mcp_server",
    "host_tool_update",
    "host_tool_result",
    "set_host_services",
    "host_service_result",
    "set_host_uri_schemes",
    "switch_session",
    "open_session",
    "export_html",
    "login",
)
NEEDED: dict[str, Scope] = {
    **dict.fromkeys(_READ, "read"),
    **dict.fromkeys(_TALK, "talk"),
    **dict.fromkeys(_ADMIN, "admin"),
}
# Members of commands that name a session file (or a folder of them), and those that name a file to write.
SESSION_PATHS = {
    "switch_session": "sessionPath",
    "delete_session": "sessionPath",
    "new_session": "parentSession",
    "open_session": "sessionDir",
    "get_subagent_messages": "sessionFile",
}
OUTPUT_PATHS = {"export_html": "outputPath"}


def covers(scope: Scope, needed: Scope) -> bool:
    """Whether a scope includes the one that is needed."""
    return SCOPES.index(scope) >= SCOPES.index(needed)


def needed_scope(name: str) -> Scope:
    """The least scope that may send a command, under any of its names."""
    return NEEDED.get(OLD_NAMES.get(name, name), "admin")


def permitted(command: dict[str, Json], scope: Scope, conversations: Conversations, cwd: str) -> dict[str, Json]:
    """The command as it may be sent, with the paths in it as they were checked; raises `Refusal`.

    `cwd` is the folder of the conversation, in which relative paths begin.
    """
    asked = str(command.get("type"))
    needed = needed_scope(asked)
    if not covers(scope, needed):
        raise Refusal(f"{asked} needs the scope {needed}, and this token has the scope {scope}")
    name = OLD_NAMES.get(asked, asked)
    checks: tuple[tuple[dict[str, str], Callable[[str, str], str]], ...] = (
        (SESSION_PATHS, conversations.usable_session),
        (OUTPUT_PATHS, conversations.usable_output),
    )
    for members, check in checks:
        member = members.get(name, "")
        path = command.get(member)
        if isinstance(path, str) and path:
            command = {**command, member: check(path, cwd)}
    return command
