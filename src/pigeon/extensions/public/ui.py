"""`ctx.ui`: questions to the person at the host, and things to show there.

Questions wait; they end with the answer, with their time-out, or when the run is aborted, and then return their default
(None, or False). Everything else is sent without waiting. Calls that only make sense in a terminal are accepted and do
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from pigeon.extensions.public.results import Placement, validate_record
from pigeon.extensions.runtime.pausable_timeout import PausableTimeout
from pigeon.extensions.runtime.session_access import SessionAccess
from pigeon.wire.base import ABSENT
from pigeon.wire.commands import ExtensionUiResponse
from pigeon.wire.dialogs import (
    CancelRequest,
    ConfirmRequest,
    DialogRequest,
    EditorRequest,
    InputRequest,
    NotifyRequest,
    SelectRequest,
    SetEditorTextRequest,
    SetStatusRequest,
    SetTitleRequest,
    SetWidgetRequest,
)

if TYPE_CHECKING:
    from pigeon.session.host.dialogs import Dialogs

NO_THEMES = "Theme switching not supported in RPC mode"


@dataclass(frozen=True, slots=True)
class ThemeResult:
    """Whether the theme was changed."""

    success: bool
    error: str = ""


class TerminalOnly:
    """Calls that only affect a terminal: accepted, without effect and without a record."""

    async def custom(self, component: Any = None, **options: Any) -> Any:
        """Shows nothing; always returns None."""
        return None

    def set_working_message(self, message: str | None = None) -> None:
        """Accepted for compatibility; has no effect here."""

    def set_working_indicator(self, **options: Any) -> None:
        """Accepted for compatibility; has no effect here."""

    def set_hidden_thinking_label(self, label: str | None = None) -> None:
        """Accepted for compatibility; has no effect here."""

    def set_footer(self, footer: Any = None) -> None:
        """Accepted for compatibility; has no effect here."""

    def set_header(self, header: Any = None) -> None:
        """Accepted for compatibility; has no effect here."""

    def set_editor_component(self, component: Any = None) -> None:
        """Accepted for compatibility; has no effect here."""

    def set_autocomplete(self, provider: Any = None) -> None:
        """Accepted for compatibility; has no effect here."""

    def set_tools_expanded(self, expanded: bool) -> None:
        """Accepted for compatibility; has no effect here."""

    def tools_expanded(self) -> bool:
        """Always False, because there is no terminal."""
        return False

    def editor_text(self) -> str:
        """Always empty, because the editor's text is not known here."""
        return ""

    def themes(self) -> list[str]:
        """Always empty, because there are no themes here."""
        return []

    def theme(self, name: str | None = None) -> Any:
        """Always None, because there are no themes here."""
        return None

    def set_theme(self, name: Any) -> ThemeResult:
        """Always fails; the result has the reason."""
        return ThemeResult(False, NO_THEMES)


class Ui(TerminalOnly):
    """Questions and messages of an extension to the host; `timeout` is in seconds."""

    def __init__(self, access: SessionAccess, timeout: PausableTimeout | None) -> None:
        self._access = access
        self._timeout = timeout

    async def select(self, title: str, options: Sequence[str], *, timeout: float | None = None) -> str | None:
        """One of the options, or any text that the host answered; None without an answer."""
        wait = _to_milliseconds(timeout)
        request = SelectRequest(id="", title=title, options=list(options), timeout=wait or ABSENT)
        return _text_of_answer(await self._ask(request, wait))

    async def confirm(self, title: str, message: str = "", *, timeout: float | None = None) -> bool:
        """The answer to a yes-or-no question; False without an answer."""
        wait = _to_milliseconds(timeout)
        answer = await self._ask(ConfirmRequest(id="", title=title, message=message, timeout=wait or ABSENT), wait)
        return answer is not None and answer.confirmed is not ABSENT and _is_true(answer.confirmed)

    async def input(self, title: str, placeholder: str | None = None, *, timeout: float | None = None) -> str | None:
        """One line of text; None without an answer."""
        wait = _to_milliseconds(timeout)
        shown = ABSENT if placeholder is None else placeholder
        return _text_of_answer(
            await self._ask(InputRequest(id="", title=title, placeholder=shown, timeout=wait or ABSENT), wait)
        )

    async def editor(self, title: str, prefill: str | None = None) -> str | None:
        """Several lines of text; None without an answer."""
        return _text_of_answer(
            await self._ask(EditorRequest(id="", title=title, prefill=_text_or_absent(prefill)), None)
        )

    def notify(self, message: str, kind: Literal["info", "warning", "error"] = "info") -> None:
        """Show a notice of this kind at the host."""
        self._send_request(NotifyRequest(id="", message=message, notify_type=kind))

    def set_status(self, key: str, text: str | None = None) -> None:
        """Set an entry of the status bar; None clears it."""
        self._send_request(SetStatusRequest(id="", status_key=key, status_text=_text_or_absent(text)))

    def set_widget(self, key: str, lines: Any = None, placement: Placement | None = None) -> None:
        """Show lines in a widget; None removes it. Anything but lines is for terminals, and ignored."""
        if lines is not None and not isinstance(lines, (list, tuple)):
            return
        shown = ABSENT if lines is None else list(lines)
        where = ABSENT if placement is None else placement
        self._send_request(SetWidgetRequest(id="", widget_key=key, widget_lines=shown, widget_placement=where))

    def set_title(self, title: str) -> None:
        """Set the title of the window."""
        self._send_request(SetTitleRequest(id="", title=title))

    def set_editor_text(self, text: str) -> None:
        """Put text into the input editor."""
        self._send_request(SetEditorTextRequest(id="", text=text))

    def paste_to_editor(self, text: str) -> None:
        """Put text into the input editor."""
        self.set_editor_text(text)

    def _send_request(self, request: DialogRequest) -> None:
        dialogs = self._access.require_dialogs()
        sure = validate_record(request)
        self._access.bridge.call(lambda: dialogs.send_notice(lambda id: replace(sure, id=id)))

    async def _ask(self, request: DialogRequest, timeout_ms: int | None) -> ExtensionUiResponse | None:
        dialogs = self._access.require_dialogs()
        sure = validate_record(request)
        return await self._access.bridge.run(lambda: self._ask_on_loop(dialogs, sure, timeout_ms))

    async def _ask_on_loop(
        self, dialogs: Dialogs, request: DialogRequest, timeout_ms: int | None
    ) -> ExtensionUiResponse | None:
        """Ask the question on the session's loop, with the extension's time limit paused."""
        sent: list[str] = []

        def make_request_with_id(id: str) -> DialogRequest:
            sent.append(id)
            return replace(request, id=id)

        if self._timeout is not None:
            self._timeout.pause()
        try:
            return await dialogs.ask(make_request_with_id, timeout_ms)
        except asyncio.CancelledError:
            if isinstance(request, EditorRequest) and sent:
                dialogs.send_notice(lambda id: CancelRequest(id=id, target_id=sent[0]))
            raise
        finally:
            if self._timeout is not None:
                self._timeout.resume()


def _to_milliseconds(seconds: float | None) -> int | None:
    return None if not seconds else max(1, int(seconds * 1000))


def _text_or_absent(text: str | None) -> Any:
    return ABSENT if text is None else text


def _text_of_answer(answer: ExtensionUiResponse | None) -> str | None:
    value = None if answer is None else answer.value
    return value if isinstance(value, str) else None


def _is_true(value: Any) -> bool:
    """True for the host's true, and for the words that some hosts send."""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "yes", "y", "1", "on")
    return bool(value)
