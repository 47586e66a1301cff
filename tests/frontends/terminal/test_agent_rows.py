"""Agents at work in the chat: what is known of each, and how they are drawn."""

from __future__ import annotations

from typing import Any

import pytest

from pigeon.frontends.terminal.agent_rows import describe_started_work, format_tokens
from pigeon.frontends.terminal.blocks import Notice, ToolCard
from pigeon.frontends.terminal.painting import Painter
from pigeon.frontends.terminal.screen.live_view import LiveView
from pigeon.frontends.terminal.transcript import ChatTranscript
from pigeon.wire import events
from pigeon.wire.agents import AgentInfo, AgentStatus, AgentWork, JobInfo
from pigeon.wire.content import TextContent
from pigeon.wire.model import Cost, Usage

USAGE = Usage(input=900, output=100, cache_read=0, cache_write=0, total_tokens=1000, cost=Cost(total=0.25))


def changed(
    id: str, status: AgentStatus = "running", parent: str = "root", activity: str = "", **more: Any
) -> events.AgentChanged:
    """News of an agent; `more` are members of its work."""
    info = AgentInfo(
        agent_id=id,
        parent_agent_id=parent,
        agent="explore",
        title=f"Look at {id}",
        status=status,
        depth=1 if parent == "root" else 2,
        tool_call_id=f"call-{id}",
        session_id=id,
        usage=USAGE,
        **({"activity": activity} if activity else {}),
    )
    members: dict[str, Any] = {"tool_count": 3, "tokens": 12_345, "cost": 0.03, "duration_ms": 4000, **more}
    work = AgentWork(
        index=0, agent_source="bundled", task="the prompt", recent_tools=[], recent_output=[], requests=1, **members
    )
    return events.AgentChanged(agent=info, work=work)


def begun(*calls: str) -> ChatTranscript:
    """A run in which these calls have begun."""
    transcript = ChatTranscript(lambda: 10.0)
    transcript.handle_event(events.AgentStart())
    for call in calls:
        args = {"prompt": "the prompt", "title": f"Look at {call}"}
        transcript.handle_event(events.ToolExecutionStart(tool_call_id=f"call-{call}", tool_name="task", args=args))
    return transcript


def drawn(transcript: ChatTranscript, width: int, rows: int = 24) -> list[str]:
    return LiveView(transcript, Painter(None), lambda: 10.0).draw_or_reuse_lines(width, rows)


def test_each_agent_has_a_line_and_what_it_does_another_below_those_that_have_started_it() -> None:
    transcript = begun("a", "b", "c")
    transcript.handle_event(changed("a", activity="grep parse_date"))
    transcript.handle_event(changed("b", status="waiting", duration_ms=0, tool_count=0, tokens=0, cost=0))
    transcript.handle_event(changed("deep", parent="a", tool_count=1))
    *lines, status = drawn(transcript, 80)
    assert lines == [
        # Nothing is known of the third one yet.
        *("◌ task Look at c  0.0 s", ""),
        "◌ explore Look at a  3 calls, 12k tokens, $0.030, 4.0 s",
        "  │ grep parse_date",
        "  ◌ explore Look at deep  1 call, 12k tokens, $0.030, 4.0 s",
        *("· explore Look at b  waiting for a place", ""),
    ]
    assert status.endswith("Esc stops it · /agents shows their work")


@pytest.mark.parametrize("width", [40, 25])
def test_in_a_narrow_terminal_the_cost_stays_longest(width: int) -> None:
    transcript = begun("a")
    transcript.handle_event(changed("a", activity="grep " + "x" * 90))
    lines = drawn(transcript, width)
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("◌ explore Look")
    assert lines[0].endswith("4.0 s")
    assert "$0.030" in lines[0] or width < 40


def test_many_agents_leave_half_of_the_rows_to_everything_else() -> None:
    transcript = begun(*map(str, range(50)))
    for number in range(50):
        transcript.handle_event(changed(str(number), activity="reads"))
    lines = drawn(transcript, 80, 16)
    assert len(lines) <= 16
    assert "  and 43 more agents; /agents has all" in lines
    assert sum("explore" in line for line in lines) == 7


def test_what_has_ended_is_gone() -> None:
    transcript = begun("a", "b")
    transcript.handle_event(changed("a"))
    transcript.handle_event(changed("b"))
    transcript.handle_event(changed("b", status="done"))
    assert [row.id for row in transcript.agents.list_tree()] == ["a"]
    transcript.finish_live_blocks()
    assert not transcript.agents.has_rows


def test_the_card_of_an_ended_agent_has_its_answer_its_type_and_what_it_has_cost() -> None:
    transcript = begun("a")
    text = "It is in `a.py`.\n\nAgent: explore, id 0198-77\nChanged files: a.py, b.py"
    usage = {"totalTokens": 1500, "cost": {"total": 0.02}}
    result = events.ToolOutcome(content=[TextContent(text=text)], details={"agent": "explore", "usage": usage})
    end = events.ToolExecutionEnd(tool_call_id="call-a", tool_name="task", result=result, is_error=False)
    (card,) = transcript.handle_event(end)
    assert isinstance(card, ToolCard)
    assert Painter(None).paint(card, 80).splitlines()[:3] == [
        "● task Look at a  explore, 2k tokens, $0.020",
        "  │ It is in `a.py`.",
        "  │ Changed files: a.py, b.py",
    ]
    assert "$0.020" in Painter(None).paint(card, 40).splitlines()[0]


@pytest.mark.parametrize(
    ("details", "note"),
    [
        (None, ""),
        ({"diff": "x"}, ""),
        ({"jobId": "job-1"}, "job-1, in the background"),
        ({"jobId": "0198", "agent": "explore"}, "explore, in the background"),
        ({"agent": "explore", "usage": "odd"}, "explore"),
        (
            {"agent": "general", "usage": {"totalTokens": 900, "cost": {}}, "branch": "b/1"},
            "general, 900 tokens, branch b/1",
        ),
        ({"agent": 3, "usage": {"cost": {"total": "x"}}}, ""),
    ],
)
def test_odd_details_of_a_call_are_left_out(details: Any, note: str) -> None:
    assert describe_started_work(details) == note


def test_tokens_are_short() -> None:
    assert [format_tokens(count) for count in (0, 999, 1500, 2_500_000)] == ["0", "999", "2k", "2.5M"]


def job(status: Any, **more: Any) -> events.JobChanged:
    return events.JobChanged(
        job=JobInfo(job_id="job-1", kind="command", title="npm test", status=status, seconds=3, **more)
    )


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (job("done", exit_code=0), "has ended with exit code 0"),
        (job("failed", exit_code=2), "has failed with exit code 2"),
        (job("stopped"), "was stopped"),
    ],
)
def test_the_end_of_a_job_is_said_once(end: events.JobChanged, words: str) -> None:
    transcript = ChatTranscript(lambda: 0.0)
    assert transcript.handle_event(job("running")) == []
    assert transcript.agents.job_count == 1
    (notice,) = transcript.handle_event(end)
    assert isinstance(notice, Notice)
    assert notice.text == f'The background command "npm test" {words}. /jobs has its output'
    assert (transcript.agents.job_count, transcript.handle_event(end)) == (0, [])
