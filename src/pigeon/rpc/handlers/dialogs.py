"""Handlers: the host's answers to dialogs."""

from __future__ import annotations

from pigeon.rpc.router import handles
from pigeon.session.session import Session
from pigeon.wire.commands import ExtensionUiResponse


@handles(ExtensionUiResponse)
def extension_ui_response(cmd: ExtensionUiResponse, s: Session) -> None:
    """Never answered itself; an unknown id is ignored."""
    s.dialogs.answer(cmd)
