"""Text and points in time on a page: what `escaped`, `TextFormatter` and `moment_html` make of them."""

from __future__ import annotations

import pytest

from pigeon.export.entry_html import conversation_html
from pigeon.export.escaping import escape_html, moment_html, to_iso_time
from pigeon.export.markdown import TextFormatter
from pigeon.export.tool_html import call_html
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.entries import MessageEntry
from pigeon.wire.messages import AssistantMessage, ToolResultMessage
from pigeon.wire.model import zero_usage


def test_every_character_with_a_meaning_in_html_is_escaped() -> None:
    assert escape_html("""<a href="x" title='y'>&</a>""") == (
        "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;&lt;/a&gt;"
    )


def test_html_in_markdown_is_shown_as_it_was_written() -> None:
    shown = TextFormatter().format_prose("a <u>b</u> **c**")
    assert "&lt;u&gt;b&lt;/u&gt;" in shown
    assert "<strong>c</strong>" in shown


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("https://x.invalid/a", True),
        ("mailto:a@x.invalid", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("src/a.py", False),
        ("ftp://x.invalid/a", False),
    ],
)
def test_only_links_to_the_web_and_to_mail_lead_somewhere(target: str, kept: bool) -> None:
    for written in (f"[here]({target})", f"![here]({target})"):
        assert ("href=" in TextFormatter().format_prose(written)) is kept


@pytest.mark.parametrize(
    ("iso", "shown"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02 03:04:05 UTC"),
        ("2026-01-02T03:04:05", "2026-01-02 03:04:05 UTC"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02 01:04:05 UTC"),
        ("<now>", "<span>&lt;now&gt;</span>"),
        ("0001-01-01T00:00:00+23:00", "<span>0001-01-01T00:00:00+23:00</span>"),
        ("", ""),
    ],
)
def test_a_point_in_time_is_shown_in_utc_or_as_it_stands(iso: str, shown: str) -> None:
    assert shown in moment_html(iso)
    assert bool(moment_html(iso)) is bool(iso)


def test_milliseconds_that_are_no_time_are_nothing() -> None:
    assert to_iso_time(1_000) == "1970-01-01T00:00:01+00:00"
    assert [to_iso_time(figure) for figure in (0, -1, 10**18)] == ["", "", ""]


@pytest.mark.parametrize(
    ("text", "opened"), [("x" * 2_000, True), ("x" * 2_001, False), ("x\n" * 8, True), ("x\n" * 9, False)]
)
def test_a_short_result_is_open_and_a_long_one_is_not(text: str, opened: bool) -> None:
    assert (
        " open>" in call_html(ToolCall(id="c", name="bash", arguments={}), _result(text), TextFormatter())
    ) is opened


def test_a_call_gets_only_a_result_that_comes_before_the_next_answer() -> None:
    items = [_entry(_calling()), _entry(_calling()), _entry(_result("late"))]
    pages = list(conversation_html(enumerate(items), TextFormatter(), {}))
    assert "no result" in pages[0][1]
    assert "late" in pages[1][1]
    assert len(pages) == 2


def _calling() -> AssistantMessage:
    return AssistantMessage(
        content=[ToolCall(id="c", name="bash", arguments={})],
        api="a",
        provider="p",
        model="m",
        usage=zero_usage(),
        stop_reason="toolUse",
        timestamp=1,
    )


def _result(text: str) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id="c", tool_name="bash", content=[TextContent(text=text)], is_error=False, timestamp=1
    )


def _entry(message: AssistantMessage | ToolResultMessage) -> MessageEntry:
    return MessageEntry(id="e", parent_id=None, timestamp="", message=message)
