"""The cards of tools: what each shows instead of its arguments; and the chart of tokens and cost."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pigeon.export.chart import MOST_BARS, Spent, chart_html
from pigeon.export.html import SessionPage
from pigeon.export.markdown import TextFormatter
from pigeon.export.tool_html import call_html, json_text
from pigeon.wire.base import ABSENT
from pigeon.wire.content import TextContent, ToolCall
from pigeon.wire.messages import ToolResultMessage
from pigeon.wire.model import Cost, Usage
from support.browser import PageReader
from support.sessions import HEADER, assistant_entry, render_page, stats, tool_result_entry, user_entry


def card(name: str, arguments: dict[str, Any], text: str | None = None, **result: Any) -> str:
    given = {"is_error": False, "details": ABSENT, **result}
    message = ToolResultMessage(
        tool_call_id="c", tool_name=name, content=[TextContent(text=text or "")], timestamp=1, **given
    )
    call = ToolCall(id="c", name=name, arguments=arguments)
    made = call_html(call, None if text is None else message, TextFormatter())
    assert PageReader(f"<html><body>{made}</body></html>").faults == []
    return made


def test_a_file_that_was_read_is_coloured_and_has_the_numbers_of_its_lines() -> None:
    made = card(
        "read", {"path": "a.py", "offset": 41, "limit": 2}, "x = 1\ny = 2\n\n[7 more lines in file. Use offset=43]"
    )
    assert '<pre class="numbers" aria-hidden="true">41\n42</pre>' in made
    assert '<span class="n">1' in made
    assert "<code>a.py:41-42</code>" in made
    assert '<p class="note">[7 more lines in file. Use offset=43]</p>' in made
    assert "limit" not in made


def test_a_file_that_was_written_is_shown_and_not_said_to_be_written() -> None:
    made = card("write", {"path": "a.sh", "content": "echo hi\n"}, "Successfully wrote to a.sh")
    assert "1 line<" in made
    assert "Successfully" not in made
    assert "No space left" in card("write", {"path": "a", "content": "x"}, "No space left", is_error=True)


@pytest.mark.parametrize(
    ("arguments", "gist"),
    [
        ({"pattern": "x", "path": "src"}, "x in src"),
        ({"pattern": "x"}, "x"),
        ({"query": "y"}, "y"),
        ({"path": "src"}, "src"),
        ({}, "."),
    ],
)
def test_a_search_is_headed_by_what_was_searched_for_and_where(arguments: dict[str, Any], gist: str) -> None:
    assert f"<code>{gist}</code>" in card("grep", arguments, "a.py:1: x")


@pytest.mark.parametrize("value", ["\ud800", {"a": "\ud800"}, object])
def test_a_value_that_is_no_json_is_shown_as_python_shows_it(value: Any) -> None:
    assert json_text(value) == repr(value)
    assert json_text({"a": [1, None]}) == '{\n  "a": [\n    1,\n    null\n  ]\n}'


def test_an_edit_shows_its_change_and_no_json() -> None:
    edits = [{"oldText": "a = 1", "newText": "a = 2"}]
    details = {"patch": "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-a = 1\n+a = 2\n"}
    made = card("edit", {"path": "a.py", "edits": edits}, "Successfully replaced 1 block(s) in a.py.", details=details)
    assert '<span class="added">+1</span> <span class="removed">-1</span>' in made
    assert "oldText" not in made


@pytest.mark.parametrize("names", [("oldText", "newText"), ("old_string", "new_string"), ("old_str", "new_str")])
def test_an_edit_that_failed_shows_what_was_asked_for_and_why(names: tuple[str, str]) -> None:
    arguments = {"file_path": "a.py", names[0]: "a = 1", names[1]: "a = 2"}
    made = card("edit", arguments, "Could not find the text", is_error=True)
    assert "<del" in made
    assert "Could not find the text" in made
    assert "failed" in made


def test_a_command_is_a_terminal_and_a_long_one_is_shown_whole() -> None:
    made = card("bash", {"command": "cd x &&\n  make"}, "\x1b[32mok\x1b[0m\n")
    assert '<span class="asked">cd x &amp;&amp;\n  make</span>\n<span class="fg2">ok</span>' in made
    assert 'class="asked"' not in card("bash", {"command": "make"}, "ok")


def test_a_plan_is_a_list_with_the_state_of_each_task() -> None:
    text = "1 of 2 tasks are finished.\n\nFix (p-1)\n[x] t-1: Read\n[>] t-2: Write\n    a remark"
    made = card("todo", {"ops": [{"op": "update"}]}, text)
    assert '<li class="done">t-1: Read <span class="state">(done)</span></li>' in made
    assert '<li class="in-progress">t-2: Write' in made
    assert "ops" not in made
    assert "a remark" in made
    assert '<li class="pending">Buy' in card("todo_write", {"todos": [{"content": "Buy", "status": "?"}]}, "ok")


@pytest.mark.parametrize("name", ["read", "write", "edit", "bash", "grep", "todo", "ls", "deploy"])
@pytest.mark.parametrize("arguments", [{}, {"path": 7, "content": None, "edits": "no", "command": ["x"], "todos": {}}])
def test_arguments_of_unexpected_kinds_are_shown_like_those_of_an_unknown_tool(
    name: str, arguments: dict[str, Any]
) -> None:
    made = card(name, arguments, "the outcome")
    assert "the outcome" in made
    for key in arguments:
        assert key in made


def test_an_unknown_tool_shows_its_arguments_by_name() -> None:
    made = card("deploy", {"target": "here", "count": 3, "options": {"list": list(range(60))}}, '{"ok": true}')
    assert "<dt>count</dt><dd><code>3</code></dd>" in made
    assert '<p class="label">options</p><pre>' in made
    assert '<span class="k">&quot;ok&quot;</span>' in made


def test_answers_that_go_on_have_no_head_of_their_own() -> None:
    call = ToolCall(id="c", name="bash", arguments={})
    made = render_page(
        HEADER,
        [
            user_entry("go"),
            assistant_entry(call),
            tool_result_entry("c", "x"),
            assistant_entry("done"),
            user_entry("on"),
            assistant_entry("y"),
        ],
        stats(),
    )
    assert made.count("<h2>Assistant</h2>") == 2
    assert made.count('class="assistant') == 3


def test_the_file_of_a_page_is_named_after_its_title() -> None:
    names = ("Fix the <parser>, ../now!", "Größe & Maß", "", "x" * 300)
    made = [SessionPage({"id": "0193-aa11-22bb33cc"}, [], [], stats(), name).make_file_name() for name in names]
    assert made[:2] == ["pigeon-fix-the-parser-now-22bb33cc.html", "pigeon-größe-maß-22bb33cc.html"]
    assert re.fullmatch(r"pigeon-session-.*-22bb33cc\.html", made[2])
    assert len(made[3]) < 100


# --- the chart --------------------------------------------------------------------------------------------------------


def test_the_chart_says_in_words_what_it_shows() -> None:
    made = chart_html([Spent(new=100, cached=2_000, out=50, cost=0.25), Spent(new=300, cached=4_000, out=10, cost=0.5)])
    reader = PageReader(f"<html><body>{made}</body></html>")
    assert reader.faults == []
    assert 'aria-label="Tokens per answer. Tokens of 2 answers in order. At most 4,310 tokens for each answer;' in made
    assert "$0.7500 in the end" in made
    assert "4,000" in reader.text
    assert made.count("<rect") == 6


def test_a_long_run_is_drawn_in_groups() -> None:
    made = chart_html([Spent(new=1, cost=0.001)] * 50_000)
    assert made.count("<rect") <= MOST_BARS
    assert "answer 50,000" in made
    assert len(made) < 20_000


@pytest.mark.parametrize("figure", [0, -5, 10**30, 1e308])
def test_figures_that_make_no_sense_do_not_stop_the_chart(figure: float) -> None:
    spent = Spent()
    spent.add(Usage(input=int(figure), output=0, cost=Cost(total=figure)))
    assert "<svg" in chart_html([spent, spent])
    assert not re.search("nan|inf", chart_html([spent, spent]))


def test_an_agent_is_headed_by_its_title_and_its_answer_is_prose() -> None:
    text = "It is **here**.\n\nAgent: explore, id 0198-77\nChanged files: <a>.py"
    details = {"agent": "explore", "agentId": "0198-77"}
    made = card(
        "task", {"prompt": "Find it, with lines", "title": "Find it", "agent": "explore"}, text, details=details
    )
    assert '<code>Find it</code> <span class="note">explore</span>' in made
    assert "<strong>here</strong>" in made
    assert '<p class="note">Changed files: &lt;a&gt;.py</p>' in made
    assert "0198-77" not in made
    assert "Find it, with lines" in made
    untitled = card("task", {"prompt": "Find it"}, "No agent can be started", is_error=True)
    assert "<code>Find it</code>" in untitled
    assert "No agent can be started" in untitled


@pytest.mark.parametrize(
    ("details", "text", "seen", "unseen"),
    [
        ({"decision": "accepted"}, "carry it out now", "accepted", "carry it out now"),
        ({"decision": "refused"}, "do not carry it out", "refused", "do not carry it out"),
        ({"decision": []}, "odd", "odd", "accepted"),
        (ABSENT, "could not be shown to anybody", "could not be shown to anybody", "accepted"),
    ],
)
def test_a_plan_that_was_submitted_is_prose_with_what_was_decided(
    details: Any, text: str, seen: str, unseen: str
) -> None:
    made = card("submit_plan", {"plan": "# Plan\n\n1. **Read**"}, text, details=details)
    assert "<strong>Read</strong>" in made
    assert seen in made
    assert unseen not in made
    assert "submit_plan" in card("submit_plan", {"plan": 3}, "invalid", is_error=True)
