"""Nothing of a session can run in its page: known attacks in every place, and text of any kind."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.export.escaping import escape_html, to_plain_text
from pigeon.export.markdown import TextFormatter
from pigeon.wire.content import Attachment, ImageContent, TextContent, ThinkingContent, ToolCall
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    LabelEntry,
    ModelChange,
    ThinkingLevelChange,
)
from pigeon.wire.messages import BashExecutionMessage, CustomMessage, UserMessage
from support.browser import ATTACKS, PageReader
from support.sessions import AT, HEADER, assistant_entry, entry, render_page, stats, tool_result_entry, user_entry


def everywhere(text: str) -> list[object]:
    base = {"id": text, "parent_id": text, "timestamp": text}
    call = ToolCall(id=text, name=text, arguments={text: text, "command": text, "deep": [{text: [text, None, 1.5]}]})
    picture = ImageContent(data=text, mime_type=text)
    encoded = ImageContent(data=base64.b64encode(text.encode("utf-8", "replace")).decode(), mime_type=text)
    shell = BashExecutionMessage(command=text, output=text, cancelled=False, truncated=False, timestamp=AT)
    attached = [Attachment(type="document", file_name=text, mime_type=text, content=text)]
    return [
        user_entry(text, picture, encoded),
        user_entry("two"),
        user_entry("three"),
        entry(UserMessage(content=text, timestamp=AT, attachments=attached)),
        assistant_entry(text, ThinkingContent(thinking=text), call, stop="error", error=text, model=text),
        tool_result_entry(text, text, failed=True, details={"diff": f"+{text}\n-{text}", text: text}),
        tool_result_entry("stray", text),
        entry(shell),
        entry(CustomMessage(custom_type=text, content=[TextContent(text=text)], display=True, timestamp=AT)),
        CustomMessageEntry(**base, custom_type=text, content=text, display=False),
        CompactionEntry(**base, summary=text, first_kept_entry_id=text, tokens_before=1),
        BranchSummaryEntry(**base, summary=text, from_id=text),
        ModelChange(**base, provider=text, model_id=text),
        ThinkingLevelChange(**base, thinking_level=text),
        LabelEntry(**base, target_id="0000aaaa", label=text),
        {"type": text, "timestamp": text, text: {text: text}},
        *in_every_tool(text),
    ]


def in_every_tool(text: str) -> list[object]:
    """Calls of the tools that have cards of their own, with the text wherever they take one."""
    given = {
        "read": {"path": f"{text}.py"},
        "write": {"path": f"{text}.html", "content": text},
        "edit": {"path": text, "edits": [{"oldText": text, "newText": f"x{text}"}]},
        "bash": {"command": f"{text}\n{text}"},
        "grep": {"pattern": text, "path": text, text: text},
        "todo": {"todos": [{"content": text, "status": text}]},
    }
    details = {"patch": f"@@ -1,2 +1,2 @@\n {text}\n-{text}\n+a {text}\n", "diff": f"-1 {text}\n+1 {text}\n {text}"}
    items: list[object] = []
    for name, arguments in given.items():
        items.append(assistant_entry(ToolCall(id=name, name=name, arguments=arguments), f"```{text}\n{text}\n```"))
        items.append(tool_result_entry(name, f"{text}\n[x] {text}\n\n[7 more lines {text}]", details=details))
    return items


def hostile_page(text: str) -> str:
    header = {"id": text, "timestamp": text, "cwd": text, "parentSession": text}
    return render_page(header, everywhere(text), stats(), text)  # type: ignore[arg-type]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_every_place_of_a_session_stays_text(attack: str) -> None:
    made = hostile_page(attack)
    reader = PageReader(made)
    assert reader.faults == []
    assert reader.pictures == []
    assert "<script" not in made.lower()
    assert reader.styles == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_still_there_to_be_read(attack: str) -> None:
    assert (
        to_plain_text(attack).strip() in PageReader(render_page(HEADER, [tool_result_entry("c", attack)], stats())).text
    )


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if "javascript" in attack.lower()])
def test_no_link_leads_to_a_script(attack: str) -> None:
    links = PageReader(hostile_page(attack)).links
    assert [link for link in links if "script" in link.lower().partition("//")[0]] == []


def test_a_picture_of_the_web_is_a_link_and_asks_nobody() -> None:
    made = PageReader(f"<html><body>{TextFormatter().format_prose('![cat](https://a.example/cat.png)')}</body></html>")
    assert made.pictures == []
    assert made.links == ["https://a.example/cat.png"]
    assert "cat" in made.text


def test_a_link_to_a_file_of_the_project_is_only_its_text() -> None:
    made = TextFormatter().format_prose("see [the parser](src/parser.py) and [top](#x) and [net](//a.example/x)")
    assert "href" not in made
    assert "the parser" in made


def test_links_say_that_they_lead_nowhere_else_with_them() -> None:
    assert 'rel="noopener noreferrer nofollow"' in TextFormatter().format_prose("[x](https://a.example)")


@given(st.text())
def test_any_text_in_any_place_is_harmless(text: str) -> None:
    assert PageReader(hostile_page(text)).faults == []


SNIPPETS = st.sampled_from(
    ["<", ">", '"', "'", "&", "[", "](", ")", "!", "`", "```", "\n", "|", "---", "*", "#", "javascript:", "on", "=",
     "x", " ", "script", "img src=x ", "<a href=", "/", "\\", "&#106;", "http://a", "<!--", "-->", "\x00", "\t"]
)  # fmt: skip


@given(st.lists(SNIPPETS, max_size=40).map("".join))
def test_any_mixture_of_markup_is_harmless(text: str) -> None:
    assert PageReader(hostile_page(text)).faults == []


@given(st.text())
def test_escaped_text_reads_back_as_the_plain_text(text: str) -> None:
    assert PageReader(f"<html><body><pre>x{escape_html(text)}</pre></body></html>").text == "x" + to_plain_text(text)
