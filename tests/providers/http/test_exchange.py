"""What holds for every adapter: how a request fails, stalls, is given up and tried again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest

from fakes.clock import virtually
from fakes.http_server import Cut, Hold, HttpServer, Reply, plain, sse
from pigeon.agent.inference import Delta
from pigeon.providers.anthropic import adapter as anthropic
from pigeon.providers.apis import APIS
from pigeon.providers.http.client import HttpClient
from pigeon.providers.http.exchange import Stalled, Watchdog, encode_body
from pigeon.providers.request import RequestPolicy
from support.model_requests import KEY, CollectedAnswer, a_model, a_request, collect_answer, request_setup

START = {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 7, "output_tokens": 1}}}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
HELLO = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}
CLOSE = {"type": "content_block_stop", "index": 0}
DELTA = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
STOP = {"type": "message_stop"}
WHOLE = sse(START, OPEN, HELLO, CLOSE, DELTA, STOP, named=True)


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = HttpClient({})
    # The patience of some tests is shorter than loading the library may take.
    await client.warm("http://127.0.0.1")
    yield client
    await client.aclose()


def ask(server: HttpServer, http: HttpClient, policy: RequestPolicy | None = None) -> AsyncIterator[Delta]:
    return anthropic.stream(a_request(a_model(base_url=server.url)), request_setup(http, policy=policy))


async def answer(http: HttpClient, *parts: Any, policy: RequestPolicy | None = None, **reply: Any) -> CollectedAnswer:
    async with HttpServer([Reply(list(parts), **reply)]) as server:
        return await collect_answer(ask(server, http, policy))


async def test_an_answer_comes_whole(http: HttpClient) -> None:
    whole = await answer(http, *WHOLE)
    assert whole.texts == ["hello"]
    assert whole.end.stop == "stop"


async def test_events_cut_anywhere_make_the_same_answer(http: HttpClient) -> None:
    data = b"".join(WHOLE)
    whole = await answer(http, *[data[at : at + 7] for at in range(0, len(data), 7)])
    assert whole.texts == ["hello"]


async def test_a_cut_connection_keeps_what_came_and_can_be_tried_again(http: HttpClient) -> None:
    broken = await answer(http, *WHOLE[:3], Cut())
    assert broken.texts == ["hello"]
    assert broken.counts[0] == 7
    assert (broken.failure.code, broken.failure.retryable) == ("connection_lost", True)
    assert broken.name.response_id == "msg_1"


async def test_a_stream_without_its_end_is_truncated(http: HttpClient) -> None:
    broken = await answer(http, *WHOLE[:4])
    assert (broken.failure.code, broken.failure.retryable) == ("truncated", True)


async def test_html_instead_of_events_is_called_that(http: HttpClient) -> None:
    for content_type in ("text/event-stream", "text/html"):
        page = await answer(http, b"<html><body>Please log in</body></html>", content_type=content_type)
        assert page.failure.code == "not_a_stream"
        assert "HTML" in page.failure.message
        assert "Please log in" in page.failure.message


async def test_a_json_error_with_status_200_is_an_error(http: HttpClient) -> None:
    refused = await answer(http, b'{"error":{"message":"no such model","code":"x"}}', content_type="application/json")
    assert "no such model" in refused.failure.message
    assert refused.failure.code == "x"


async def test_nothing_at_all_is_said_to_be_empty(http: HttpClient) -> None:
    assert (await answer(http)).failure.code == "empty_stream"


async def test_data_that_is_no_json_breaks_the_answer_but_not_what_came_before(http: HttpClient) -> None:
    broken = await answer(http, *WHOLE[:3], b"event: content_block_delta\ndata: {not json\n\n", *WHOLE[3:])
    assert broken.texts == ["hello"]
    assert broken.failure.code == "malformed_stream"
    assert "content_block_delta" in broken.failure.message


async def test_a_silent_stream_is_given_up(http: HttpClient) -> None:
    silent = await answer(http, *WHOLE[:3], Hold(), policy=RequestPolicy(idle_ms=200))
    assert silent.texts == ["hello"]
    assert (silent.failure.code, silent.failure.retryable) == ("idle_timeout", True)
    assert "0.2 s" in silent.failure.message


async def test_a_server_that_never_answers_is_given_up(http: HttpClient) -> None:
    silent = await answer(http, held_headers=Hold(), policy=RequestPolicy(idle_ms=200))
    assert silent.failure.code == "idle_timeout"


async def test_keep_alives_are_no_content(http: HttpClient) -> None:
    async def pings(reply: Reply, stop: asyncio.Event) -> None:
        """Pings for as long as the client listens; the reply's list grows while it is sent."""
        while not stop.is_set():
            hold = Hold()
            reply.parts.extend([b': hi\n\nevent: ping\ndata: {"type":"ping"}\n\n', hold])
            await hold.reached.wait()
            await asyncio.sleep(0)
            hold.released.set()

    first = Hold()
    reply = Reply([*WHOLE[:1], first])
    stop = asyncio.Event()
    async with HttpServer([reply]) as server:
        feeding = asyncio.ensure_future(pings(reply, stop))
        first.released.set()
        quiet = await collect_answer(ask(server, http, RequestPolicy(idle_ms=60)))
        stop.set()
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding
    assert quiet.failure.code == "idle_timeout"
    assert quiet.counts[0] == 7


async def test_closing_the_answer_drops_the_connection(http: HttpClient) -> None:
    hold = Hold()
    async with HttpServer([Reply([*WHOLE[:3], hold])]) as server:
        stream = ask(server, http)
        async for delta in stream:
            if getattr(delta, "text", "") == "hello":
                break
        await stream.aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(30):
            await server.requests[0].gone.wait()


async def test_cancelling_the_reader_drops_the_connection(http: HttpClient) -> None:
    hold = Hold()
    async with HttpServer([Reply([*WHOLE[:3], hold])]) as server:
        task = asyncio.ensure_future(collect_answer(ask(server, http)))
        await hold.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            await server.requests[0].gone.wait()


async def test_a_finished_answer_leaves_its_connection_to_the_next(http: HttpClient) -> None:
    async with HttpServer([Reply(WHOLE), Reply(WHOLE)]) as server:
        await collect_answer(ask(server, http))
        await asyncio.gather(*http._background)
        await collect_answer(ask(server, http))
        assert [request.connection for request in server.requests] == [1, 1]


async def test_nobody_listening_is_a_connection_failure(http: HttpClient) -> None:
    refused = await collect_answer(
        anthropic.stream(a_request(a_model(base_url="http://127.0.0.1:1")), request_setup(http))
    )
    assert (refused.failure.code, refused.failure.retryable) == ("connection_failed", True)


async def test_a_bad_base_url_says_so(http: HttpClient) -> None:
    refused = await collect_answer(anthropic.stream(a_request(a_model(base_url="htp:/x")), request_setup(http)))
    assert (refused.failure.code, refused.failure.retryable) == ("bad_url", False)


async def test_the_key_never_shows_in_a_failure(http: HttpClient) -> None:
    async with HttpServer([plain(401, {"error": {"message": f"bad key {KEY}"}})]) as server:
        refused = await collect_answer(ask(server, http))
    assert KEY not in refused.failure.message
    assert "***" in refused.failure.message


async def test_a_request_is_tried_again_before_its_stream_began(http: HttpClient) -> None:
    busy = plain(529, {"error": {"type": "overloaded_error", "message": "x"}}, retry_after_ms="1")
    async with HttpServer([busy, busy, Reply(WHOLE)]) as server:
        whole = await collect_answer(ask(server, http, RequestPolicy(max_retries=2)))
        assert len(server.requests) == 3
    assert whole.texts == ["hello"]


async def test_a_request_is_not_tried_again_when_that_is_no_use(http: HttpClient) -> None:
    async with HttpServer([plain(400, {"error": {"message": "no"}})]) as server:
        await collect_answer(ask(server, http, RequestPolicy(max_retries=2)))
        assert len(server.requests) == 1


async def test_a_server_that_asks_for_too_much_patience_is_reported(http: HttpClient) -> None:
    busy = plain(429, {"error": {"message": "slow down"}}, retry_after="120")
    async with HttpServer([busy]) as server:
        refused = await collect_answer(ask(server, http, RequestPolicy(max_retries=2, max_retry_delay_ms=60_000)))
    assert "120000 ms" in refused.failure.message
    assert "60000 ms" in refused.failure.message
    assert refused.failure.retry_after_ms == 120_000


async def test_two_first_requests_share_one_client() -> None:
    http = HttpClient({})
    await asyncio.gather(http.warm("http://x"), http.warm("http://y"))
    assert len(http._pools) == 1
    await http.aclose()


def test_unpaired_surrogates_do_not_leave_and_split_pairs_join() -> None:
    assert encode_body({"text": "a\ud83d"}) == '{"text":"a\ufffd"}'.encode()
    assert encode_body({"text": ["\ud83d\ude00"]}) == '{"text":["\U0001f600"]}'.encode()
    assert encode_body({"n": [float("nan"), 1.5, "\ud83d"]}) == '{"n":[null,1.5,"\ufffd"]}'.encode()
    assert encode_body({"n": 10**30}) == b'{"n":1000000000000000000000000000000}'


async def test_a_proxy_of_the_environment_is_used_except_where_it_says_not() -> None:
    async with HttpServer([Reply(WHOLE), Reply(WHOLE)]) as proxy, HttpServer([Reply(WHOLE)]) as server:
        http = HttpClient({"HTTP_PROXY": proxy.url, "NO_PROXY": "127.0.0.1"})
        far = a_model(base_url="http://models.invalid")
        assert (await collect_answer(anthropic.stream(a_request(far), request_setup(http)))).texts == ["hello"]
        assert proxy.requests[0].path == "http://models.invalid/v1/messages"
        assert (await collect_answer(ask(server, http))).texts == ["hello"]
        assert len(proxy.requests) == 1
        await http.aclose()


USAGE = {"input_tokens": 7, "output_tokens": 2}
WHOLES: list[tuple[str, dict[str, Any]]] = [
    (
        "anthropic-messages",
        {
            "id": "msg_1",
            "type": "message",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "hi"},
                {"type": "tool_use", "id": "c", "name": "bash", "input": {"command": "ls"}},
            ],
            "stop_reason": "tool_use",
            "usage": USAGE,
        },
    ),
    (
        "openai-completions",
        {
            "id": "c",
            "choices": [
                {
                    "message": {
                        "reasoning": "hm",
                        "content": "hi",
                        "tool_calls": [{"id": "c", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2},
        },
    ),
    (
        "openai-responses",
        {
            "id": "r",
            "status": "completed",
            "output": [
                {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi"}]},
                {"type": "function_call", "call_id": "c", "name": "bash", "arguments": '{"command":"ls"}'},
            ],
            "usage": USAGE,
        },
    ),
    (
        "google-generative-ai",
        {
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {"text": "hm", "thought": True},
                            {"text": "hi"},
                            {"functionCall": {"name": "bash", "args": {"command": "ls"}, "id": "c"}},
                        ]
                    },
                    "finishReason": "STOP",
                }
            ],
            "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2},
        },
    ),
]


@pytest.mark.parametrize(("api", "body"), WHOLES, ids=[api for api, _ in WHOLES])
async def test_a_server_that_does_not_stream_is_understood(http: HttpClient, api: str, body: dict[str, Any]) -> None:
    adapter = import_module(APIS[api].adapter)
    async with HttpServer([plain(200, body), plain(200, {"error": {"message": "Overloaded", "code": "x"}})]) as server:
        model = a_model(api=api, base_url=server.url)
        whole = await collect_answer(adapter.stream(a_request(model), request_setup(http)))
        assert sorted(whole.kinds) == ["text", "thinking", "toolCall"]
        assert sorted(whole.texts) == sorted(["hm", "hi", '{"command":"ls"}'])
        assert list(whole.calls.values()) == [("c", "bash")]
        assert whole.counts == (7, 2, 0, 0)
        assert whole.end.stop == "toolUse"
        refused = await collect_answer(adapter.stream(a_request(model), request_setup(http)))
        assert "Overloaded" in refused.failure.message
        assert refused.failure.retryable


def test_silence_ends_in_stalled() -> None:
    async def story() -> float:
        watchdog = Watchdog(300)
        with pytest.raises(Stalled):
            await watchdog.wait(asyncio.Event().wait())
        watchdog.stop()
        return asyncio.get_running_loop().time()

    assert virtually(story()) == pytest.approx(300)


def test_waits_without_content_add_up() -> None:
    async def pings(watchdog: Watchdog) -> None:
        while True:
            await watchdog.wait(asyncio.sleep(15))

    async def story() -> float:
        watchdog = Watchdog(300)
        with pytest.raises(Stalled):
            await pings(watchdog)
        watchdog.stop()
        return asyncio.get_running_loop().time()

    assert virtually(story()) == pytest.approx(300)


def test_content_gives_the_full_time_again() -> None:
    async def story() -> None:
        watchdog = Watchdog(300)
        for _ in range(30):
            await watchdog.wait(asyncio.sleep(299))
            watchdog.reset()
        watchdog.stop()

    virtually(story())


def test_silence_after_content_lasts_as_long_as_allowed_and_hardly_longer() -> None:
    async def story(content_at: float) -> float:
        watchdog = Watchdog(300)
        await watchdog.wait(asyncio.sleep(content_at))
        watchdog.reset()
        with pytest.raises(Stalled):
            await watchdog.wait(asyncio.Event().wait())
        watchdog.stop()
        return asyncio.get_running_loop().time() - content_at

    for content_at in (0.1, 3, 5.9, 6.1, 299):
        assert 300 <= virtually(story(content_at)) <= 306


def test_a_slow_reader_is_not_blamed_on_the_server() -> None:
    async def story() -> None:
        watchdog = Watchdog(300)
        await watchdog.wait(asyncio.sleep(1))
        watchdog.reset()
        await asyncio.sleep(10_000)
        await watchdog.wait(asyncio.sleep(299))
        watchdog.stop()

    virtually(story())


def test_zero_means_never() -> None:
    async def story() -> str:
        return await Watchdog(0).wait(asyncio.sleep(1_000_000, "late"))

    assert virtually(story()) == "late"


async def test_a_cancellation_from_outside_stays_one() -> None:
    watchdog = Watchdog(300)
    task = asyncio.ensure_future(watchdog.wait(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    watchdog.stop()
