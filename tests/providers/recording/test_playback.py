"""Which recorded answer a request gets, what is shown of one that differs, and how answers end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pigeon.providers.errors import StreamBroken, from_exception
from pigeon.providers.http.recorders import HttpRequest
from pigeon.providers.recording import playback as playing
from pigeon.providers.recording.folders import FolderNames
from pigeon.providers.recording.playback import Playback, PlaybackOptions
from pigeon.providers.recording.reader import Recording

Line = dict[str, Any]
URL = "http://here/v1"
X20 = "x" * 20


def an_exchange(number: int, body: Any, *said: str, t: int = 0, over: int = 0) -> list[Line]:
    sent = {"kind": "request", "exchange": number, "t": t, "url": URL, "body": body}
    head = {"kind": "response", "exchange": number, "t": t, "status": 200, "headers": {"content-encoding": "gzip"}}
    pieces = [{"kind": "received", "exchange": number, "t": t, "text": text} for text in said]
    return [sent, head, *pieces, {"kind": "end", "exchange": number, "t": over or t}]


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Any]:
    made: list[Recording] = []

    def play(*lines: list[Line], match: Any = "strict", names: FolderNames | None = None) -> Playback:
        first = [{"kind": "recording", "version": 1, "seed": "0"}, {"kind": "agent", "models": []}]
        path = tmp_path / "r"
        path.write_text("".join(json.dumps(line) + "\n" for line in (*first, *(one for some in lines for one in some))))
        made.append(Recording(str(path)))
        return Playback(made[-1], PlaybackOptions(match=match), names or FolderNames({}, {}))

    yield play
    for recording in made:
        recording.close()


def asking(body: Any, url: str = URL) -> HttpRequest:
    return HttpRequest(url, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


async def text_of(playback: Playback, body: Any) -> str:
    answer = await playback.answer(asking(body))
    assert answer.headers == []
    return b"".join([piece async for piece in answer.aiter_stream()]).decode()


async def refusal(playback: Playback, body: Any, url: str = URL) -> str:
    with pytest.raises(StreamBroken) as broken:
        await playback.answer(asking(body, url))
    assert not broken.value.failure.retryable
    return broken.value.failure.message


@pytest.mark.parametrize(
    ("recorded", "sent", "shown"),
    [
        ({"a": 1}, {"a": 2}, "$.a: recorded 1, sent 2"),
        ({"a": 1}, {}, "$.a: recorded 1, and not sent"),
        ({}, {"b": [1]}, "$.b: not recorded, and sent [1]"),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, '$.a[1].b: recorded "x", sent "y"'),
        ({"a": [1]}, {"a": [1, 2]}, "$.a[1]: not recorded, and sent 2"),
        ({"a": [1, 2]}, {"a": [1]}, "$.a[1]: recorded 2, and not sent"),
        (
            {"a": "x" * 50 + "1"},
            {"a": "x" * 50 + "2"},
            f'$.a at character 50: recorded "{X20}1", sent "{X20}2"',
        ),
        ({"a": "x"}, {"a": None}, '$.a: recorded "x", sent null'),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, {}, "and 1 more"),
        ({"a": 1}, b"no json", "$: recorded {"),
    ],
)
async def test_the_difference_is_shown_with_its_path(recorded: Any, sent: Any, shown: str, played: Any) -> None:
    said = await refusal(played(an_exchange(1, recorded, "yes")), sent)
    assert "Exchange 1 of" in said
    assert "(line 3)" in said
    assert shown in said


async def test_another_address_differs(played: Any) -> None:
    said = await refusal(played(an_exchange(1, {})), {}, "http://there/v1")
    assert "the address: recorded POST http://here/v1, sent POST http://there/v1" in said
    said = await refusal(played(an_exchange(1, {}), match="loose"), {}, "http://there/v1")
    assert "has no further answer from http://there/v1" in said


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        ({"prompt_cache_key": "one", "a": 1}, {"prompt_cache_key": "two", "a": 1}),
        ({"metadata": {"user_id": "one"}}, {"metadata": {"user_id": "two"}}),
        ({"a": "key *** and *** end"}, {"a": "key sk-123 and sk-456 end"}),
        ({"a": "in /old/place/x"}, {"a": "in /new/x"}),
        ({"a": 1.0}, {"a": 1}),
    ],
)
async def test_names_keys_and_folders_may_differ(recorded: Any, sent: Any, played: Any) -> None:
    names = FolderNames({"cwd": "/old/place"}, {"cwd": "/new"})
    assert await text_of(played(an_exchange(1, recorded, "y", "es"), names=names), sent) == "yes"


async def test_requests_that_were_under_way_together_may_come_in_any_order(played: Any) -> None:
    together = (an_exchange(1, "one", "1", t=0, over=9), an_exchange(2, "two", "2", t=5, over=7))
    playback = played(*together, an_exchange(3, "three", "3", t=10, over=11))
    assert await text_of(playback, "two") == "2"
    assert "recorded" in await refusal(playback, "three")
    assert await text_of(playback, "one") == "1"
    assert await text_of(playback, "three") == "3"
    assert "all 3 exchanges in it are used up" in await refusal(playback, "four")


async def test_a_failure_is_the_one_that_was_recorded(played: Any) -> None:
    sent = {"kind": "request", "exchange": 1, "url": URL, "body": {}}
    playback = played([sent, {"kind": "failed", "exchange": 1, "error": "ConnectError", "reason": "refused"}])
    with pytest.raises(Exception) as failed:  # noqa: PT011 - made for its name
        await playback.answer(asking({}))
    failure = from_exception(failed.value)
    assert (failure.message, failure.retryable) == ("Connection failed: refused", True)


@pytest.mark.parametrize("end", [[], [{"kind": "dropped", "exchange": 1}]])
async def test_an_answer_that_was_let_go_of_stays_open_for_a_while(
    end: list[Line], played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "HELD_SECONDS", 0.01)
    exchange = an_exchange(1, {}, "half")
    answer = await played([*exchange[:-1], *end]).answer(asking({}))
    stream = answer.aiter_stream()
    assert await anext(stream) == b"half"
    with pytest.raises(StreamBroken, match="The recorded answer goes no further"):
        await asyncio.wait_for(anext(stream), 5)
