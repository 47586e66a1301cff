"""Who may send which command: `read` sees, `talk` also speaks and answers, `admin` does everything.

What is not listed is for `admin`: a new command is not open to others before it is decided about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pigeon.serve.watching import Scope
from pigeon.wire.base import Json

if TYPE_CHECKING:
    from pigeon.serve.conversations import Conversations

READ = frozenset(
    (
        "hello",
        "set_event_filter",
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
        "get_integrations",
        "get_html",
        "render_html",
        "find_text",
        "get_branches",
        "get_subagents",
    )
)
TALK = frozenset(
    (
        "prompt",
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
        "set_steering_mode",
        "set_follow_up_mode",
        "set_interrupt_mode",
        "set_locale",
        "set_auto_compaction",
        "set_auto_retry",
        "abort_retry",
        "compact",
        "navigate_tree",
        "set_session_name",
        "set_todos",
        "extension_ui_response",
    )
)
# Members of commands that name files, and may only name what is below the folders that may be opened.
PATHS = {"switch_session": "sessionPath", "new_session": "parentSession", "open_session": "sessionDir"}


def refused_command(command: Mapping[str, Json], scope: Scope, conversations: Conversations) -> str | None:
    """Why a client with this scope may not send a command; none if it may."""
    name = str(command.get("type"))
    needed: Scope = "read" if name in READ else "talk" if name in TALK else "admin"
    order: tuple[Scope, ...] = ("read", "talk", "admin")
    if order.index(scope) < order.index(needed):
        return f"{name} needs the scope {needed}, and this token has the scope {scope}"
    path = command.get(PATHS.get(name, ""))
    if isinstance(path, str) and not conversations.may_use_file(path):
        return f"{path} is outside of the folders that may be opened"
    return None
