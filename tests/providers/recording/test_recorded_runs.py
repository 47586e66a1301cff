"""`--record` and `recorded/FILE` end to end: a run recorded over any API gives the same lines in each dialect."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from fakes.http_server import APIS, PATHS, Calling, Cut, Reply, answer, plain
from pigeon.dialects.choice import NAMES
from pigeon.wire.errors import StartupError
from support.in_process_agent import InProcessAgent, RecordedRun

KEY = "sk-here-5Tq81LmXw2"


async def talk(agent: InProcessAgent) -> None:
    """Tools, a refusal, a cut stream, another model and a compaction."""
    session = agent.agent.session
    (agent.work / "notes.txt").write_text("one\n")
    await agent.prompt("What is there?")
    session.models.select_model("here", "two")
    await agent.prompt("And now?")
    await session.history.compact()


def broken_off(reply: Reply) -> Reply:
    """The same answer, without its end."""
    return Reply([*reply.parts[:-1], Cut()])


def replies(api: str) -> list[Reply]:
    calls = (Calling("bash", {"command": "cat notes.txt"}), Calling("read", {"path": "notes.txt"}))
    looking = (Calling("read", {"path": "missing.txt"}), Calling("bash", {"command": "pwd"}))
    return [
        plain(429, {"error": {"type": "rate_limit_error", "message": "Slow down"}}, retry_after_ms="1"),
        answer(api, "Let me see. ", *calls),
        answer(api, *looking),
        broken_off(answer(api, "There is ", "a note.")),
        Reply([b"<html>not now</html>"], content_type="text/html"),
        answer(api, "There is a note: café."),
        answer(api, "Still the same."),
        answer(api, "A summary."),
        answer(api, "A summary of the turn."),
    ]


@pytest.mark.parametrize("api", APIS)
async def test_a_recording_is_played_byte_for_byte_in_each_dialect(api: str, tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, talk, {"compaction": {"keepRecentTokens": 10, "reserveTokens": 1000}})
    live = await run.record(api, PATHS[api], replies(api))
    # In the folder of the recorded run, which is made anew.
    (tmp_path / "recorded").rename(tmp_path / "before")
    played = await run.replay("recorded")
    for dialect in NAMES:
        assert played[dialect] == live[dialect], dialect
        assert len(played[dialect]) > 20
    assert any(b'"auto_retry_start"' in line for line in live["pi"])
    assert any(b'"compaction_end"' in line for line in live["pi"])


async def test_an_abort_between_two_attempts_is_played_again(tmp_path: Path) -> None:
    async def give_up(agent: InProcessAgent) -> None:
        await agent.prompt("Hello")
        agent.events.clear()
        await agent.ask("Once more")
        await agent.until("auto_retry_start")
        agent.agent.session.engine.abort()
        await agent.wait_until_settled()
        await agent.prompt("Well?")

    api = "anthropic-messages"
    busy = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
    run = RecordedRun(tmp_path, give_up)
    replies = [plain(529, busy), answer(api, "Hi."), plain(529, busy, retry_after_ms="60000"), answer(api, "Well.")]
    live = await run.record(api, "", replies)
    (tmp_path / "recorded").rename(tmp_path / "before")
    played = await run.replay("recorded")
    assert played["pi"] == live["pi"]
    assert any(b"Retry cancelled" in line for line in live["pi"])


async def test_a_recording_is_played_in_another_folder_and_names_it(tmp_path: Path) -> None:
    api = "anthropic-messages"
    there = tmp_path / "recorded" / "work"
    asks = Calling("bash", {"command": f"cat {there}/notes.txt"})

    async def ask_for_files(agent: InProcessAgent) -> None:
        (agent.work / "notes.txt").write_text("one\n")
        await agent.prompt("What is there?")

    run = RecordedRun(tmp_path, ask_for_files)
    await run.record(api, "", [answer(api, f"I look into {there}", ".", asks), answer(api, f"{there} has a note.")])
    first, second = await run.replay("elsewhere/one"), await run.replay("elsewhere/two")
    here, other = (str(tmp_path / "elsewhere" / name / "work").encode() for name in ("one", "two"))
    assert first["pi"] == [line.replace(other, here) for line in second["pi"]]
    told = b"".join(first["pi"])
    assert str(there).encode() not in told
    assert here + b" has a note." in told
    assert b'"text":"one\\n"' in told


async def test_a_request_that_differs_is_refused_with_the_place(tmp_path: Path) -> None:
    asked = ["What is there?", "What is not there?"]

    async def ask(agent: InProcessAgent) -> None:
        await agent.prompt(asked.pop(0))

    run = RecordedRun(tmp_path, ask)
    api = "openai-completions"
    await run.record(api, "/v1", [answer(api, "Nothing.")])
    differs = b"".join((await run.replay("strictly"))["pi"]).decode()
    assert "The request is not the recorded one. Exchange 1 of" in differs
    assert "(line " in differs
    assert "$.messages[1].content" in differs
    assert "What is not there?" in differs
    assert "auto_retry_start" not in differs
    asked.append("Whatever")
    assert b"Nothing." in b"".join((await run.replay("loosely", "?match=loose"))["pi"])


async def test_more_than_was_recorded_is_refused(tmp_path: Path) -> None:
    times = [1, 2]

    async def ask(agent: InProcessAgent) -> None:
        for _ in range(times.pop(0)):
            await agent.prompt("Again")

    run = RecordedRun(tmp_path, ask)
    api = "google-generative-ai"
    await run.record(api, "", [answer(api, "Once.")])
    told = b"".join((await run.replay("longer", "?match=loose"))["pi"]).decode()
    assert "has no further answer: all 1 exchanges in it are used up" in told


async def test_a_recording_is_private_and_has_no_key(tmp_path: Path) -> None:
    async def ask(agent: InProcessAgent) -> None:
        await agent.prompt(f"My key is {KEY}")

    run = RecordedRun(tmp_path, ask)
    run.file.write_text("what was there before")
    run.file.chmod(0o644)
    api = "anthropic-messages"
    await run.record(api, f"/{KEY}", [answer(api, f"It is {KEY[:9]}", f"{KEY[9:]}.")])
    assert stat.S_IMODE(run.file.stat().st_mode) == 0o600
    assert KEY.encode() not in run.file.read_bytes()
    assert [line["kind"] for line in run.lines()][:2] == ["recording", "agent"]
    # What was masked in the recording may be anything.
    assert b"It is " in b"".join((await run.replay("elsewhere"))["pi"])


async def test_a_full_disk_ends_the_recording_and_not_the_run(tmp_path: Path) -> None:
    async def ask(agent: InProcessAgent) -> None:
        await agent.prompt("Hello")
        assert agent.model_texts() == ["Hi."]

    run = RecordedRun(tmp_path, ask)
    run.file = Path("/dev/full")
    api = "anthropic-messages"
    told = await run.record(api, "", [answer(api, "Hi.")])
    assert sum(b"--record /dev/full ends here: No space left on device" in line for line in told["pi"]) <= 1


async def test_a_replay_keeps_no_session_unless_a_folder_is_named(tmp_path: Path) -> None:
    files: list[str | None] = []

    async def ask(agent: InProcessAgent) -> None:
        await agent.prompt("Hello")
        files.append(agent.agent.session.journal.file)

    run = RecordedRun(tmp_path, ask)
    api = "anthropic-messages"
    await run.record(api, "", [answer(api, "Hi.")], no_session=False)
    await run.replay("one")
    await run.replay("two", session_dir=str(tmp_path / "kept"))
    live, none, kept = files
    assert live is not None
    assert none is None
    assert kept is not None
    # The same session, with the same ids and times.
    assert Path(kept).name == Path(live).name
    recorded, played = [await asyncio.to_thread(Path(path).read_text, "utf-8") for path in (live, kept)]
    assert played == recorded.replace(str(tmp_path / "recorded"), str(tmp_path / "two"))


async def test_options_of_a_recorded_model_are_checked(tmp_path: Path) -> None:
    async def nothing(agent: InProcessAgent) -> None:
        """No prompt."""

    run = RecordedRun(tmp_path, nothing)
    await run.record("anthropic-messages", "", [])
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("?match=lose", {}, '"match=lose" is not known'),
        ("?speed=-1", {}, '"speed=-1" is not known'),
        ("?speed=2&x", {}, '"x=" is not known'),
        ("", {"record": str(run.file)}, "would overwrite the recording"),
    ]
    for number, (query, options, problem) in enumerate(cases):
        with pytest.raises(StartupError, match=problem.replace("?", r"\?")):
            await run.replay(f"case{number}", query, **options)
    await run.replay("fast", "?speed=max&match=strict")
