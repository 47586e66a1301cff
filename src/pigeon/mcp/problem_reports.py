"""Problems with tool servers and their files, reported once each."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from pigeon.mcp.connector.main import NOT_INSTALLED

if TYPE_CHECKING:
    from pigeon.mcp.server import ToolServer


class ProblemReports:
    """Reports the problems of one agent's servers. `report` shows a text to the host."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[str] = set()

    def report_once(self, text: str) -> None:
        """Report a problem, unless it has been reported."""
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)

    def report_server(self, server: ToolServer) -> None:
        """Report why a server cannot be used, with what to do about it."""
        text = server.error or ""
        if NOT_INSTALLED in text:
            # The reason is the same for every server, so it is reported once.
            self.report_once(text[text.index(NOT_INSTALLED) :])
        elif server.status == "sign_in":
            self.report_once(f"{text}. Sign in with: pigeon mcp test {shlex.quote(server.config.name)}")
        else:
            self.report_once(f"Tool server {text}")

    def forget_server(self, name: str) -> None:
        """Report the problems of a server again: it is connected anew."""
        self._reported = {text for text in self._reported if not text.startswith(f"{name}: ")}
