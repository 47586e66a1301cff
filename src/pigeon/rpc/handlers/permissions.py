"""Handlers: the permission rules of the host."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.answers import Permissions
from pigeon.wire.commands import GetPermissions, SetApprovalMode, SetPermissions


@handles(SetPermissions)
def set_permissions(cmd: SetPermissions, s: Session) -> Permissions:
    s.dependencies.permissions.set_host_rules(cmd.permissions)
    return s.dependencies.permissions.current_permissions()


@handles(SetApprovalMode)
def set_approval_mode(cmd: SetApprovalMode, s: Session) -> Permissions:
    """Takes effect at the next tool call."""
    s.dependencies.permissions.set_host_mode(cmd.mode)
    return s.dependencies.permissions.current_permissions()


@handles(GetPermissions)
def get_permissions(cmd: GetPermissions, s: Session) -> Permissions:
    """All sources, and the allowances of the session."""
    return s.dependencies.permissions.current_permissions()
