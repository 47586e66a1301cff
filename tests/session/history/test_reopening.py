"""A session that was closed, or whose process died, goes on where it was."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fakes.agent_loop import AnyTool, calls, says
from pigeon.session.history.journal import INTERRUPTED, Journal
from pigeon.session.navigation import NavigationOptions
from pigeon.wire.content import text_of
from pigeon.wire.entries import ContextEdit
from support.model_requests import assistant_message, tool_call, tool_result
from support.session_setup import SessionSetup
from support.sessions import DiskRepository, user


def reopen_journal(journal: Journal, folder: Path) -> Journal:
    journal.close()
    assert journal.file is not None
    return DiskRepository(folder).open(journal.file, "/")


def said_to(setup: SessionSetup) -> list[str]:
    """What the model was shown last."""
    return [text_of(message.content) for message in setup.provider.requests[-1].messages]


async def test_a_branched_session_goes_on_from_the_branch_that_was_written_last(tmp_path: Path) -> None:
    setup = SessionSetup(says("one"), says("two"), says("other two"), folder=tmp_path)
    for message in ("first", "second"):
        await setup.prompt(message)
    journal = setup.session.journal
    second = next(line for line in journal.branch if line.message and text_of(line.message.content) == "second")  # type: ignore[union-attr]
    await setup.session.history.navigate(second.id, NavigationOptions())
    await setup.prompt("other second")
    shape = [(line.id, line.parent_id) for line in journal.lines]
    branch, leaf = [line.id for line in journal.branch], journal.leaf_id
    await setup.close()

    assert journal.file is not None
    later = SessionSetup(says("three"), journal=DiskRepository(tmp_path).open(journal.file, "/"))
    opened = later.session.journal
    assert [(line.id, line.parent_id) for line in opened.lines[: len(shape)]] == shape
    assert [line.id for line in opened.branch[: len(branch)]] == branch
    await later.prompt("third")
    assert said_to(later) == ["first", "one", "other second", "other two", "third"]
    asked = next(line for line in opened.lines[len(shape) :] if line.role == "user")
    assert leaf in [line.id for line in opened.path_to(asked.id)]
    await later.close()


@pytest.mark.parametrize("edge", ["orphan", "second root", "same id"])
def test_the_leaf_of_an_odd_file_is_its_last_entry(edge: str, tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    for text in ("a", "b", "c"):
        journal.append_message(user(text))
    journal.close()
    file = Path(str(journal.file))
    header, *entries = [json.loads(line) for line in file.read_bytes().splitlines()]
    if edge == "same id":
        entries[2]["id"] = entries[0]["id"]
        entries[2]["parentId"] = entries[1]["id"]
    else:
        entries[2]["parentId"] = None if edge == "second root" else "gone"
    file.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in (header, *entries)))
    opened = DiskRepository(tmp_path).open(str(file), "/")
    assert opened.leaf_id == entries[2]["id"]
    assert [text_of(line.message.content) for line in opened.branch if line.message][-1] == "c"  # type: ignore[union-attr]
    assert len(opened.branch) == (2 if edge == "same id" else 1)
    opened.close()


def roles_when_reopened(journal: Journal, folder: Path) -> list[str]:
    with closing(reopen_journal(journal, folder)) as opened:
        return [line.role or line.type for line in opened.branch]


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_an_answer_that_was_stopped_is_not_repaired_on_reopening(stop: Any, tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    journal.append_message(user("go"))
    journal.append_message(assistant_message(tool_call("c1"), stop_reason=stop))
    assert roles_when_reopened(journal, tmp_path) == ["user", "assistant"]


def test_the_calls_of_an_answer_that_a_crash_cut_off_get_their_missing_results(tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    journal.append_message(user("go"))
    journal.append_message(assistant_message(tool_call("c1"), tool_call("c2"), tool_call("c3"), stop_reason="toolUse"))
    journal.append_message(tool_result("c2", "done"))
    opened = reopen_journal(journal, tmp_path)
    results = [line.message for line in opened.branch if line.role == "toolResult"]
    assert [(one.tool_call_id, text_of(one.content), one.is_error) for one in results] == [  # type: ignore[union-attr]
        ("c2", "done", False),
        ("c1", INTERRUPTED, True),
        ("c3", INTERRUPTED, True),
    ]
    assert roles_when_reopened(opened, tmp_path) == ["user", "assistant", "toolResult", "toolResult", "toolResult"]


def test_an_answer_that_was_taken_out_of_the_context_is_passed_over(tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    journal.append_message(user("go"))
    journal.append_message(assistant_message(tool_call("c1"), stop_reason="toolUse"))
    failed = journal.append_message(assistant_message(tool_call("c2"), stop_reason="toolUse"))
    journal.append(ContextEdit, target_id=failed.id, replacement=None)
    opened = reopen_journal(journal, tmp_path)
    results = [line.message for line in opened.branch if line.role == "toolResult"]
    assert [one.tool_call_id for one in results] == ["c1"]  # type: ignore[union-attr]
    opened.close()


def test_what_the_user_said_after_an_open_call_leaves_it_alone(tmp_path: Path) -> None:
    journal = DiskRepository(tmp_path).create_journal("/")
    journal.append_message(assistant_message(tool_call("c1"), stop_reason="toolUse"))
    journal.append_message(user("never mind"))
    assert roles_when_reopened(journal, tmp_path) == ["assistant", "user"]


async def test_a_run_that_died_in_a_tool_goes_on_with_the_next_prompt(tmp_path: Path) -> None:
    tool = AnyTool("tool")
    journal = DiskRepository(tmp_path).create_journal("/")
    journal.append_message(user("go"))
    journal.append_message(assistant_message(tool_call("c1"), stop_reason="toolUse"))
    setup = SessionSetup(calls(("tool", {})), says("ready"), journal=reopen_journal(journal, tmp_path), tools=(tool,))
    await setup.prompt("on")
    assert len(tool.seen) == 1, "the new call ran, the old one did not"
    assert said_to(setup) == ["go", "", INTERRUPTED, "on", "", "done"]
    await setup.close()
