"""The exported page: what a reader finds in it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from pathlib import Path

import pytest

from pigeon.export.html import write_page
from pigeon.export.markdown import LONGEST
from pigeon.wire.content import Attachment, ImageContent, ThinkingContent, ToolCall
from pigeon.wire.entries import BranchSummaryEntry, CompactionEntry, CustomMessageEntry, ModelChange
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import BashExecutionMessage, UserMessage
from support.browser import PageReader
from support.sessions import (
    AT,
    BEGAN,
    HEADER,
    assistant_entry,
    entry,
    render_page,
    stats,
    tool_result_entry,
    user_entry,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))


def read(*items: object, name: str | None = None) -> PageReader:
    made = PageReader(render_page(HEADER, list(items), stats(), name))  # type: ignore[arg-type]
    assert made.faults == []
    return made


def test_the_head_of_the_page_says_what_session_it_is_and_what_it_cost() -> None:
    text = read(user_entry("hello"), assistant_entry("hi", model="fake-1"), assistant_entry("hi", model="fake-2")).text
    for fact in ("0193-aa", "2026-11-01 10:00:00 UTC", "/home/ada/project", "lab/fake-1", "lab/fake-2"):
        assert fact in text
    for figure in ("12,000 in", "3,400 out", "50,001 from cache", "102 to cache", "$0.1234", "19 (2 by the user)"):
        assert figure in text


def test_the_title_is_the_name_else_the_first_prompt_else_the_id() -> None:
    assert "<title>parser work</title>" in render_page(HEADER, [user_entry("hello")], stats(), "parser work")
    assert "<title>hello there</title>" in render_page(HEADER, [user_entry("hello\nthere")], stats())
    assert "<title>Session 0193-aa</title>" in render_page(HEADER, [], stats())


def test_markdown_of_the_model_is_formatted() -> None:
    made = render_page(
        HEADER, [assistant_entry("# Head\n\n**bold** `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n~~old~~")], stats()
    )
    for piece in ("<h3>Head</h3>", "<strong>bold</strong>", "<code>code</code>", "<td>1</td>", "<s>old</s>"):
        assert piece in made


def test_text_of_the_user_is_formatted_too_and_keeps_its_lines() -> None:
    made = render_page(HEADER, [user_entry("**first** line\nsecond\n\n- item <i>x</i>")], stats())
    assert "<p><strong>first</strong> line<br>\nsecond</p>" in made
    assert "<li>item &lt;i&gt;x&lt;/i&gt;</li>" in made


def test_a_call_stands_with_its_arguments_and_its_result() -> None:
    call = ToolCall(id="c1", name="bash", arguments={"command": "ls -la", "timeout": 30})
    made = render_page(HEADER, [assistant_entry(call, stop="toolUse"), tool_result_entry("c1", "total 0")], stats())
    inside = re.search(r"<details class=\"card\".*?</details>", made, re.S)
    assert inside is not None
    for piece in ("<b>bash</b>", "ls -la", "timeout", "30", "total 0"):
        assert piece in inside[0]
    assert made.count("total 0") == 1


def test_an_id_that_comes_again_in_a_later_turn_gets_that_turns_result() -> None:
    call = ToolCall(id="call_0", name="bash", arguments={"command": "date"})
    items = [
        assistant_entry(call),
        tool_result_entry("call_0", "first day"),
        assistant_entry(call),
        tool_result_entry("call_0", "second day"),
    ]
    made = render_page(HEADER, items, stats())
    first, second = made.split('id="m2"')
    assert "first day" in first
    assert "second day" in second
    assert "first day" not in second


def test_a_call_without_result_and_a_result_without_call_are_both_shown() -> None:
    text = read(assistant_entry(ToolCall(id="c1", name="bash", arguments={})), tool_result_entry("other", "stray")).text
    assert "no result" in text
    assert "stray" in text


def test_a_failed_tool_says_so() -> None:
    call = ToolCall(id="c1", name="bash", arguments={"command": "false"})
    assert "failed" in read(assistant_entry(call), tool_result_entry("c1", "exit 1", failed=True)).text


def test_the_change_of_an_edit_is_shown_line_by_line() -> None:
    call = ToolCall(id="c1", name="edit", arguments={"path": "a.py"})
    made = render_page(
        HEADER, [assistant_entry(call), tool_result_entry("c1", "ok", details={"diff": " 1 a\n-2 b\n+2 <c>"})], stats()
    )
    assert '<del data-n="2">b</del>' in made
    assert '<ins data-n="2">&lt;c&gt;</ins>' in made


def test_thinking_errors_and_unusual_ends_are_shown() -> None:
    items = (assistant_entry(ThinkingContent(thinking="deep thought"), stop="error", error="529 overloaded"),)
    text = read(*items, assistant_entry(ThinkingContent(thinking="", redacted=True), stop="aborted")).text
    for piece in ("deep thought", "529 overloaded", "ended: error", "ended: aborted", "kept secret"):
        assert piece in text


def test_shell_commands_of_the_host_are_shown_with_their_end() -> None:
    shell = BashExecutionMessage(
        command="make", output="no rule", exit_code=2, cancelled=False, truncated=True, timestamp=AT,
        exclude_from_context=True,
    )  # fmt: skip
    text = read(entry(shell)).text
    for piece in ("make", "no rule", "exit code 2", "output shortened", "not shown to the model"):
        assert piece in text


def test_summaries_changes_and_extension_messages_are_shown() -> None:
    base = {"id": "a", "parent_id": None, "timestamp": BEGAN}
    text = read(
        CompactionEntry(**base, summary="we fixed it", first_kept_entry_id="a", tokens_before=123_456),
        BranchSummaryEntry(**base, summary="other way", from_id="b"),
        ModelChange(**base, provider="lab", model_id="fake-9"),
        CustomMessageEntry(**base, custom_type="todo", content="write it down", display=False),
    ).text
    for piece in ("we fixed it", "123,456 tokens", "other way", "lab/fake-9", "write it down", "for the model only"):
        assert piece in text


def test_an_entry_of_unknown_form_is_shown_as_it_is_kept() -> None:
    text = read({"type": "from_the_future", "timestamp": 7, "what": ["<b>", 1]}).text
    assert "from_the_future" in text
    assert "<b>" in text


def test_attachments_are_named() -> None:
    attached = Attachment(type="document", file_name="plan.pdf")
    assert "plan.pdf" in read(entry(UserMessage(content="see", timestamp=AT, attachments=[attached]))).text


def test_a_picture_is_inside_the_page() -> None:
    data = base64.b64encode(PNG).decode()
    made = read(user_entry("look", ImageContent(data=data, mime_type="image/png")))
    assert made.pictures == [f"data:image/png;base64,{data}"]


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (base64.b64encode(b"<svg onload='alert(1)'/>").decode(), "image/svg+xml"),
        (base64.b64encode(b"<html>").decode(), "image/png"),
        ("not base64!", "image/png"),
        ('x" onerror="alert(1)', "image/png"),
        ("", "text/html,<script>"),
    ],
)
def test_what_is_no_plain_picture_is_left_out_and_said(data: str, mime: str) -> None:
    made = read(user_entry("look", ImageContent(data=data, mime_type=mime)))
    assert made.pictures == []
    assert "left out" in made.text


def test_the_kind_of_a_picture_is_told_by_its_bytes() -> None:
    data = base64.b64encode(b"RIFF\x00\x00\x00\x00WEBPVP8 ").decode()
    assert (
        read(user_entry("", ImageContent(data=data, mime_type="image/png"))).pictures[0].startswith("data:image/webp;")
    )


def test_colours_of_terminals_are_classes_and_control_characters_do_not_reach_the_page() -> None:
    made = render_page(HEADER, [tool_result_entry("c", "\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07 nul\x00")], stats())
    assert '<span class="fg1">red</span> bell\ufffd nul\ufffd' in made
    assert "\x1b" not in made


def test_a_text_too_long_for_formatting_is_still_there_in_full() -> None:
    text = "*" * LONGEST + " the end"
    assert "the end" in read(assistant_entry(text)).text


@pytest.mark.parametrize(
    "text", [">" * 500 + " deep down", "\n".join(" " * i + "- deep down" for i in range(0, 600, 2))]
)
def test_a_text_nested_too_deep_for_formatting_is_still_there_in_full(text: str) -> None:
    assert text in read(assistant_entry(text)).text


def test_prompts_are_listed_as_links() -> None:
    made = read(user_entry("one"), assistant_entry("x"), user_entry("two"), user_entry("three"))
    assert {"#m0", "#m2", "#m3"} <= set(made.links)


def test_the_policy_allows_the_one_style_sheet_and_no_script() -> None:
    made = render_page(HEADER, [user_entry("hi")], stats())
    reader = PageReader(made)
    style = re.search(r"<style>(.*?)</style>", made, re.S)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert reader.styles == 1
    assert f"style-src 'sha256-{digest}'" in reader.policy
    for rule in ("default-src 'none'", "script-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'"):
        assert rule in reader.policy
    assert made.index("Content-Security-Policy") < made.index("<style>")


def test_figures_and_times_that_make_no_sense_do_not_stop_the_page() -> None:
    odd = {"id": 7, "timestamp": None, "cwd": ["x"]}
    late = entry(UserMessage(content="late", timestamp=10**30))
    assert PageReader(render_page(odd, [late], stats())).faults == []


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_page_is_written_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(str(path), [b"in ", b"two"])
    assert path.read_bytes() == b"in two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["page.html"]


def test_an_older_page_is_replaced_by_one_that_is_private(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o644)
    write_page(str(path), [b"new"])
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_missing_folder_is_a_refusal_that_names_the_path_and_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "page.html"
    with pytest.raises(Refusal, match=re.escape(f"ENOENT: no such file or directory, open '{path}'")):
        write_page(str(path), [b"x"])
    assert os.listdir(tmp_path) == []


def test_a_folder_in_the_place_of_the_page_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="EISDIR"):
        write_page(str(tmp_path), [b"x"])


@pytest.mark.parametrize("way", ["link.html", "hard.html", "session.jsonl", "sub/../session.jsonl", "around/hard.html"])
def test_the_session_itself_is_never_overwritten(tmp_path: Path, way: str) -> None:
    session = tmp_path / "session.jsonl"
    session.write_text("precious")
    (tmp_path / "sub").mkdir()
    (tmp_path / "around").symlink_to(".")
    (tmp_path / "link.html").symlink_to(session)
    (tmp_path / "hard.html").hardlink_to(session)
    with pytest.raises(Refusal, match="session itself"):
        write_page(str(tmp_path / way), [b"x"], protected=str(session))
    assert session.read_text() == "precious"


@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_a_link_at_the_name_of_the_page_is_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "there").write_text("precious")
    (tmp_path / "page.html").symlink_to(tmp_path / target)
    with pytest.raises(Refusal, match=r"Not a regular file: .*page\.html is a link"):
        write_page(str(tmp_path / "page.html"), [b"x"])
    assert (tmp_path / "there").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_other_names_of_an_older_page_keep_their_content(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "page.html").hardlink_to(tmp_path / "mine")
    write_page(str(tmp_path / "page.html"), [b"new"])
    assert ((tmp_path / "mine").read_text(), (tmp_path / "page.html").read_text()) == ("precious", "new")


def test_a_relative_path_does_not_leave_its_folder_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work" / "docs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal, match="a link leads out of"):
        write_page(str(tmp_path / "work" / "docs" / "page.html"), [b"x"], called="docs/page.html")
    assert os.listdir(tmp_path / "elsewhere") == []
    write_page(
        str(tmp_path / "work" / "docs" / "page.html"), [b"x"], called=str(tmp_path / "work" / "docs" / "page.html")
    )
    assert os.listdir(tmp_path / "elsewhere") == ["page.html"]


def test_a_pipe_in_the_place_of_the_page_is_a_refusal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "page.html")
    with pytest.raises(Refusal, match="a named pipe"):
        write_page(str(tmp_path / "page.html"), [b"x"])
