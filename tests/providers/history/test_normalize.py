from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pigeon.providers.anthropic.adapter import to_call_id as anthropic_id
from pigeon.providers.history.normalize import (
    BAD_IMAGE,
    EMPTY_MESSAGE,
    NO_RESULT,
    TOOL_IMAGE,
    USER_IMAGE,
    CallIds,
    normalize_messages,
)
from pigeon.providers.openai_chat.adapter import to_call_id as chat_id
from pigeon.providers.openai_chat.adapter import to_short_call_id
from pigeon.wire.base import ABSENT
from pigeon.wire.content import ImageContent, TextContent, ThinkingContent, ToolCall
from pigeon.wire.messages import AssistantMessage, ToolResultMessage, UserMessage
from support.model_requests import (
    PNG,
    a_model,
    assistant_message,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    user_message,
)

HERE = a_model()
ELSEWHERE = a_model(id="m-2", provider="there", api="openai-responses")


def given_to(model: Any, *messages: Any, call_id_form: Any = anthropic_id) -> list[Any]:
    return normalize_messages(list(messages), model, CallIds(call_id_form))


def shape(messages: list[Any]) -> str:
    letters = {UserMessage: "u", AssistantMessage: "a", ToolResultMessage: "r"}
    return "".join(letters[type(message)] for message in messages)


def test_the_same_model_gets_its_thinking_back_with_signatures() -> None:
    blocks = [
        thinking_block("hm", "s"),
        thinking_block("", "only-signed"),
        thinking_block("", "x", redacted=True),
        text_block("t", "ts"),
    ]
    [out] = given_to(HERE, assistant_message(*blocks, by=HERE))
    assert out.content == blocks


def test_another_model_gets_no_thoughts_and_no_signatures() -> None:
    blocks = [
        thinking_block("hm", "s"),
        thinking_block("", "only-signed"),
        thinking_block("z", "x", redacted=True),
        text_block("t", "ts"),
    ]
    [out] = given_to(HERE, assistant_message(*blocks, tool_call("c", "sig"), by=ELSEWHERE))[:1]
    assert out.content[0] == TextContent(text="t")
    assert out.content[1].thought_signature is ABSENT
    assert not any(isinstance(block, ThinkingContent) for block in out.content)


def test_another_api_or_provider_is_another_model() -> None:
    for by in (a_model(api="other"), a_model(provider="other"), a_model(id="other")):
        [out] = given_to(HERE, assistant_message(thinking_block("hm", "s"), text_block("t"), by=by))
        assert out.content == [TextContent(text="t")]


def test_failed_answers_stay_out_with_their_results() -> None:
    out = given_to(
        HERE,
        user_message("a"),
        assistant_message(tool_call("x"), stop_reason="error"),
        tool_result("x", "never"),
        assistant_message(text_block("half"), stop_reason="aborted"),
        user_message("b"),
    )
    assert shape(out) == "uu"


def test_unanswered_calls_get_an_error_result_in_the_middle_and_at_the_end() -> None:
    out = given_to(
        HERE,
        user_message("a"),
        assistant_message(tool_call("x"), tool_call("y")),
        tool_result("x", "1"),
        user_message("b"),
        assistant_message(tool_call("z")),
    )
    assert shape(out) == "uarruar"
    assert [m.tool_call_id for m in out if isinstance(m, ToolResultMessage)] == ["x", "y", "z"]
    assert out[3].is_error
    assert out[3].content == [TextContent(text=NO_RESULT)]
    assert out[-1].content == [TextContent(text=NO_RESULT)]


def test_a_result_that_came_after_an_interjection_moves_to_its_call() -> None:
    out = given_to(HERE, assistant_message(tool_call("x")), user_message("wait"), tool_result("x", "late"))
    assert shape(out) == "aru"
    assert out[1].content == [TextContent(text="late")]


def test_results_without_a_call_and_second_results_are_dropped() -> None:
    out = given_to(
        HERE,
        tool_result("ghost", "boo"),
        assistant_message(tool_call("x")),
        tool_result("x", "1"),
        tool_result("x", "2"),
    )
    assert shape(out) == "ar"
    assert out[1].content == [TextContent(text="1")]


def test_results_follow_their_renamed_calls() -> None:
    out = given_to(HERE, assistant_message(tool_call("call|fc"), by=ELSEWHERE), tool_result("call|fc", "1"))
    assert out[0].content[0].id == out[1].tool_call_id == "call_fc"


def test_ids_that_only_differ_where_they_are_cut_stay_apart() -> None:
    long = "x" * 64
    out = given_to(
        HERE,
        assistant_message(tool_call(long + "a"), tool_call(long + "b"), by=ELSEWHERE),
        tool_result(long + "b", "B"),
    )
    ids = [block.id for block in out[0].content]
    assert len(set(ids)) == 2
    assert all(len(one) <= 64 for one in ids)
    by_id = {message.tool_call_id: message for message in out[1:]}
    assert by_id[ids[1]].content == [TextContent(text="B")]


def test_an_id_that_comes_twice_in_a_history_is_made_unique() -> None:
    out = given_to(
        HERE,
        assistant_message(tool_call("t")),
        tool_result("t", "1"),
        user_message("again"),
        assistant_message(tool_call("t")),
        tool_result("t", "2"),
    )
    calls = [m.content[0].id for m in out if isinstance(m, AssistantMessage)]
    results = [m.tool_call_id for m in out if isinstance(m, ToolResultMessage)]
    assert calls == results
    assert len(set(calls)) == 2


def test_images_become_words_for_a_model_that_cannot_see() -> None:
    blind = a_model(input=["text"])
    out = given_to(
        blind,
        user_message([TextContent(text="look"), PNG, PNG]),
        assistant_message(tool_call("x"), by=blind),
        tool_result("x", PNG),
        user_message([PNG]),
    )
    assert out[0].content == [TextContent(text="look"), TextContent(text=USER_IMAGE)]
    assert out[2].content == [TextContent(text=TOOL_IMAGE)]
    assert out[3].content == [TextContent(text=USER_IMAGE)]


def test_images_that_no_api_reads_become_words_and_other_names_of_a_type_its_own() -> None:
    jpg = ImageContent(data="aGk=", mime_type="image/jpg")
    bad = [ImageContent(data="aGk=", mime_type="image/tiff"), ImageContent(data="", mime_type="image/png")]
    [out] = given_to(HERE, user_message([jpg, *bad, PNG]))
    assert out.content == [
        ImageContent(data="aGk=", mime_type="image/jpeg"),
        TextContent(text=BAD_IMAGE),
        PNG,
    ]


def test_the_given_messages_are_not_changed() -> None:
    message = assistant_message(thinking_block("hm", "s"), tool_call("a|b"), by=ELSEWHERE)
    given_to(a_model(input=["text"]), message, tool_result("a|b", PNG))
    assert isinstance(message.content[0], ThinkingContent)
    assert message.content[1].id == "a|b"


calls = st.lists(st.sampled_from(["a", "b", "c|d", "c_d", "x" * 70 + "1", "x" * 70 + "2"]), max_size=3, unique=True)
makers = st.sampled_from([HERE, ELSEWHERE])
stops = st.sampled_from(["stop", "toolUse", "error", "aborted"])
messages = st.lists(
    st.one_of(
        st.just(user_message("hi")),
        st.builds(
            lambda ids, by, stop: assistant_message(
                text_block("t"), *(tool_call(one) for one in ids), by=by, stop_reason=stop
            ),
            calls,
            makers,
            stops,
        ),
        st.builds(lambda one: tool_result(one, "r"), st.sampled_from(["a", "b", "c|d", "c_d"])),
    ),
    max_size=12,
)


@given(messages, st.sampled_from([anthropic_id, chat_id, to_short_call_id]))
def test_any_history_comes_out_well_formed(history: list[Any], call_id_form: Any) -> None:
    out = normalize_messages(history, HERE, CallIds(call_id_form))
    seen: set[str] = set()
    waiting: list[str] = []
    for message in out:
        if isinstance(message, ToolResultMessage):
            assert waiting
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = [block.id for block in message.content if isinstance(block, ToolCall)]
            assert not seen & set(waiting)
            seen |= set(waiting)
    assert not waiting


@given(st.text(min_size=1, max_size=120))
def test_normalised_ids_fit_their_apis(old: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", anthropic_id(old))
    assert len(chat_id(old)) <= 40
    assert re.fullmatch(r"[A-Za-z0-9]{9}", to_short_call_id(old))


LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


@given(st.text(max_size=80))
def test_a_name_that_a_model_made_up_becomes_one_that_apis_take(name: str) -> None:
    call = ToolCall(id="c", name=name, arguments={})
    result = ToolResultMessage(tool_call_id="c", tool_name=name, content=[], is_error=True, timestamp=1)
    out = given_to(HERE, assistant_message(call, by=HERE), result)
    assert LEGAL.fullmatch(out[0].content[0].name)
    assert out[1].tool_name == out[0].content[0].name
    assert (call.name, result.tool_name) == (name, name)


def test_made_up_names_stay_recognisable() -> None:
    for name, shown in {"functions.bash": "functions_bash", "": "unknown", "a b": "a_b", "x" * 200: "x" * 64}.items():
        out = given_to(HERE, assistant_message(ToolCall(id="c", name=name, arguments={}), by=HERE))
        assert [out[0].content[0].name, out[1].tool_name] == [shown, shown]


def test_calls_and_results_with_good_names_are_the_very_same() -> None:
    answer, result = assistant_message(tool_call("c"), by=HERE), tool_result("c", "1")
    out = given_to(HERE, user_message("go"), answer, result)
    assert out[1] is answer
    assert out[2] is result


def test_an_empty_message_gets_words_where_there_is_nothing_else_to_answer() -> None:
    assert [m.content for m in given_to(HERE, user_message(""))] == [EMPTY_MESSAGE]
    out = given_to(
        HERE, user_message("hi"), assistant_message(text_block("yes"), by=HERE), user_message([TextContent(text=" \n")])
    )
    assert out[2].content == EMPTY_MESSAGE
    again = given_to(HERE, user_message(""), assistant_message(text_block("yes"), by=HERE), user_message("more"))
    assert [m.content for m in (again[0], again[2])] == [EMPTY_MESSAGE, "more"]


def test_an_empty_message_beside_another_stays_empty() -> None:
    for messages in (
        [user_message(""), user_message("x")],
        [user_message("x"), user_message("")],
        [user_message([PNG]), user_message("")],
    ):
        assert given_to(HERE, *messages) == messages
    out = given_to(
        HERE, user_message("x"), assistant_message(tool_call("c"), by=HERE), tool_result("c", "1"), user_message("")
    )
    assert out[3].content == ""


def test_of_several_empty_messages_one_gets_words() -> None:
    out = given_to(HERE, user_message(""), assistant_message(text_block(" "), by=HERE), user_message(""))
    assert [m.content for m in out if isinstance(m, UserMessage)] == ["", EMPTY_MESSAGE]
