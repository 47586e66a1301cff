"""Handlers: the plan that host and model share."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import TodoPhases
from pigeon.wire.commands import SetTodos


@handles(SetTodos)
def set_todos(cmd: SetTodos, s: Session) -> TodoPhases:
    """Replaces the whole plan; an empty list clears it."""
    return TodoPhases(todo_phases=s.todos.set_host_plan(cmd.phases))
