"""Changing the conversation: what ends before, what an extension may refuse, and what the next one begins with."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.agent_loop import says
from pigeon.session.hooks import NoHooks
from pigeon.wire.content import text_of
from pigeon.wire.entries import ModelChange, ThinkingLevelChange
from pigeon.wire.errors import Refusal
from pigeon.wire.events import AgentSettled
from pigeon.wire.messages import UserMessage
from support.model_requests import assistant_message, text_block
from support.session_setup import SessionSetup
from support.sessions import DiskRepository, user


class Asked(NoHooks):
    """Extensions that note what they are asked and told, and refuse if they are meant to."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.notes: list[Any] = []

    def should_refuse_switch(self, reason: Any, target: str | None) -> bool:
        self.notes.append(("switch?", reason, target))
        return self.refuses

    def should_refuse_fork(self, entry_id: str, position: Any) -> bool:
        self.notes.append(("fork?", entry_id, position))
        return self.refuses

    def on_session_ending(self, reason: Any, target: str | None = None) -> None:
        self.notes.append(("ending", reason, target))

    def on_session_started(self, reason: Any, previous: str | None = None) -> None:
        self.notes.append(("started", reason, previous))


async def make_talked_setup(folder: Path, *words: str, hooks: NoHooks | None = None) -> SessionSetup:
    setup = SessionSetup(*(says(f"to {word}") for word in words), folder=folder, hooks=hooks)
    for word in words:
        await setup.prompt(word)
    return setup


def user_texts(setup: SessionSetup) -> list[str]:
    return [text_of(message.content) for message in setup.session.context if isinstance(message, UserMessage)]


def entry_of(setup: SessionSetup, word: str) -> str:
    lines = setup.session.journal.lines
    return next(line.id for line in lines if line.role == "user" and word.encode() in line.raw)


async def test_a_new_conversation_is_empty_and_extensions_hear_of_both(tmp_path: Path) -> None:
    hooks = Asked()
    setup = await make_talked_setup(tmp_path, "one", hooks=hooks)
    before = setup.session.journal
    assert not await setup.session.switching.veto_or_open_new("/parent.jsonl")
    after = setup.session.journal
    assert (user_texts(setup), after.session_id != before.session_id, after.cwd) == ([], True, before.cwd)
    assert hooks.notes == [("switch?", "new", None), ("ending", "new", after.file), ("started", "new", before.file)]
    assert b'"parentSession":"/parent.jsonl"' in next(after.iterate_lines())
    kinds = [line.type for line in after.branch]
    assert kinds == ["model_change", "thinking_level_change"]
    assert not await setup.session.switching.veto_or_open_new("")
    assert b"parentSession" not in next(setup.session.journal.iterate_lines())


async def test_an_extension_may_refuse_every_change_before_anything_happens(tmp_path: Path) -> None:
    hooks = Asked(refuses=True)
    setup = await make_talked_setup(tmp_path, "one", "two", hooks=hooks)
    journal, entry = setup.session.journal, entry_of(setup, "two")
    switching = setup.session.switching
    assert await switching.veto_or_open_new()
    assert await switching.veto_or_open("/elsewhere.jsonl")
    assert await switching.fork(entry, "forking") == ("two", True)
    assert await switching.veto_or_clone()
    assert setup.session.journal is journal
    assert user_texts(setup) == ["one", "two"]
    assert hooks.notes == [
        ("switch?", "new", None),
        ("switch?", "resume", "/elsewhere.jsonl"),
        ("fork?", entry, "before"),
        ("fork?", journal.leaf_id, "at"),
    ]
    await setup.close()


async def test_the_run_and_the_queue_end_with_the_conversation(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    setup = SessionSetup([hold], says("fresh"), folder=tmp_path)
    running = asyncio.ensure_future(setup.prompt("one"))
    await reached.wait()
    setup.session.queue.add(user("later"), "followUp")
    old = setup.session.journal
    await setup.session.switching.veto_or_open_new()
    await running
    assert len(setup.heard.of(AgentSettled)) == 1
    assert [line.role for line in old.branch if line.role] == ["system", "user", "assistant"], "the old one has its end"
    assert len(setup.session.queue) == 0
    await setup.prompt("two")
    assert user_texts(setup) == ["two"]
    await setup.close()


async def test_a_shell_command_of_the_old_conversation_is_not_kept_in_the_new_one(tmp_path: Path) -> None:
    hooks = Shell()
    setup = SessionSetup(folder=tmp_path, hooks=hooks)
    running = asyncio.ensure_future(setup.session.shell.run("sleep", False, "b"))
    await setup.until(lambda: hooks.asked)
    old = setup.session.journal
    await setup.session.switching.veto_or_open_new()
    assert (await running).cancelled
    assert not [line for journal in (old, setup.session.journal) for line in journal.lines if line.role]


class Shell(NoHooks):
    """An extension that never answers for a shell command."""

    asked = False

    async def intercept_user_bash(self, command: str, excluded: bool, cwd: str) -> None:
        self.asked = True
        await asyncio.get_running_loop().create_future()


async def test_another_file_is_opened_with_its_folder_and_the_old_one_is_let_go(tmp_path: Path) -> None:
    hooks = Asked()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = DiskRepository(tmp_path).create_journal(str(elsewhere))
    other.append(ModelChange, provider="here", model_id="m-1")
    other.append(ThinkingLevelChange, thinking_level="off")
    other.append_message(user("from there"))
    other.append_message(assistant_message(text_block("yes")))
    other.close()
    setup = await make_talked_setup(tmp_path, "one", hooks=hooks)
    first = setup.session.journal.file
    assert not await setup.session.switching.veto_or_open(str(other.file))
    assert (user_texts(setup), setup.session.journal.cwd) == (["from there"], str(elsewhere))
    assert setup.session.shell.workplace.cwd == str(elsewhere), "commands run there from here on"
    assert hooks.notes == [
        ("switch?", "resume", other.file),
        ("ending", "resume", other.file),
        ("started", "resume", first),
    ]
    DiskRepository(tmp_path).open(str(first), "/").close()
    await setup.close()


async def test_a_file_that_cannot_be_opened_leaves_everything_as_it_was(tmp_path: Path) -> None:
    hooks = Asked()
    setup = await make_talked_setup(tmp_path, "one", hooks=hooks)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nothing\n")
    journal = setup.session.journal
    with pytest.raises(Refusal, match="not a valid pi session"):
        await setup.session.switching.veto_or_open(str(bad))
    assert setup.session.journal is journal
    assert hooks.notes == [("switch?", "resume", str(bad))]
    await setup.close()


@pytest.mark.parametrize("linked", [False, True])
async def test_the_conversation_in_use_can_be_opened_again(tmp_path: Path, linked: bool) -> None:
    setup = await make_talked_setup(tmp_path, "one")
    path = str(setup.session.journal.file)
    if linked:
        os.symlink(path, tmp_path / "link.jsonl")
        path = str(tmp_path / "link.jsonl")
    assert not await setup.session.switching.veto_or_open(path)
    assert user_texts(setup) == ["one"]
    assert setup.repository.reports == []
    await setup.close()


@pytest.mark.parametrize("same", [True, False])
async def test_the_run_has_ended_before_another_conversation_or_the_same_is_opened(tmp_path: Path, same: bool) -> None:
    reached = asyncio.Event()

    async def hold() -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    other = DiskRepository(tmp_path).create_journal(str(tmp_path))
    other.append_message(user("from there"))
    other.append_message(assistant_message(text_block("yes")))
    other.close()
    setup = SessionSetup(says("to one"), [hold], says("to three"), folder=tmp_path)
    await setup.prompt("one")
    running = asyncio.ensure_future(setup.prompt("two"))
    await reached.wait()
    old = setup.session.journal
    assert not await setup.session.switching.veto_or_open(str(old.file if same else other.file))
    await running
    roles = ["system", "user", "assistant", "user", "assistant"]
    assert [line.role for line in old.branch if line.role] == roles, "the old one has the end of its run"
    assert len(setup.heard.of(AgentSettled)) == 2
    assert user_texts(setup) == (["one", "two"] if same else ["from there"])
    if same:
        assert [line.role for line in setup.session.journal.branch if line.role] == roles
    await setup.prompt("three")
    await setup.close()


async def test_a_fork_ends_before_the_message_and_gives_its_text(tmp_path: Path) -> None:
    hooks = Asked()
    setup = await make_talked_setup(tmp_path, "one", "two", "three", hooks=hooks)
    old = setup.session.journal
    entry = entry_of(setup, "two")
    assert await setup.session.switching.fork(entry, "forking") == ("two", False)
    new = setup.session.journal
    assert user_texts(setup) == ["one"]
    assert new.file != old.file
    assert hooks.notes == [("fork?", entry, "before"), ("ending", "fork", new.file), ("started", "fork", old.file)]
    assert f'"parentSession":"{old.file}"'.encode() in next(new.iterate_lines())
    assert await setup.session.switching.fork(entry_of(setup, "one"), "branching") == ("one", False)
    assert user_texts(setup) == []
    await setup.close()


@pytest.mark.parametrize("name", ["forking", "branching"])
async def test_a_fork_needs_a_message_of_the_user(tmp_path: Path, name: Any) -> None:
    setup = await make_talked_setup(tmp_path, "one")
    answer = next(line.id for line in setup.session.journal.lines if line.role == "assistant")
    for entry in ("gone", answer, setup.session.journal.lines[0].id):
        with pytest.raises(Refusal, match=f"Invalid entry ID for {name}"):
            await setup.session.switching.fork(entry, name)
    assert user_texts(setup) == ["one"]
    await setup.close()


async def test_a_copy_is_the_branch_and_needs_a_message(tmp_path: Path) -> None:
    setup = SessionSetup(says("to one"), folder=tmp_path)
    with pytest.raises(Refusal, match="Cannot clone session"):
        await setup.session.switching.veto_or_clone()
    await setup.prompt("one")
    old = setup.session.journal
    assert not await setup.session.switching.veto_or_clone()
    assert setup.session.journal.file != old.file
    assert user_texts(setup) == ["one"]
    assert [line.raw for line in setup.session.journal.branch] == [line.raw for line in old.branch]
    assert setup.session.journal.is_saved
    await setup.close()
