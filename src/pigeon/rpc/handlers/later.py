"""Commands of the protocol that this version cannot carry out: a plain failure, never a fake success."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire import commands as c
from pigeon.wire.commands import Command, name_of
from pigeon.wire.errors import NotAvailable


@handles(c.ExportHtml, c.SetTodos, c.SetHostTools)
def not_yet(cmd: Command, s: Session) -> None:
    """Says so."""
    raise NotAvailable(f"{name_of(type(cmd))} is not supported by this version of Pigeon")


@handles(c.HostToolUpdate, c.HostToolResult)
def nothing_open(cmd: Command, s: Session) -> None:
    """Nothing of the kind is ever open, so there is nothing to do."""
