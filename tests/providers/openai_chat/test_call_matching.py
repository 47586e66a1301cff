"""Which pieces of a chat answer make one tool call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.agent.inference import Delta
from pigeon.providers.openai_chat.call_matching import PendingCall
from pigeon.providers.openai_chat.stream import ChatStream
from support.model_requests import CollectedAnswer
from support.strategies import json_objects, letters

A, B = '{"path":"a {[\\""}', '{"path":"b"}'


def piece(index: int | None = None, call_id: str | None = None, name: str | None = None, text: Any = "") -> Any:
    said: dict[str, Any] = {"function": {"name": name, "arguments": text}}
    return said | ({} if index is None else {"index": index}) | ({} if call_id is None else {"id": call_id})


def play(*chunks: Any) -> CollectedAnswer:
    translator = ChatStream("m")
    out: list[Delta] = []
    for pieces in chunks:
        calls = pieces if isinstance(pieces, list) else [pieces]
        translator.translate_event(b"", json.dumps({"choices": [{"delta": {"tool_calls": calls}}]}).encode(), out)
    translator.translate_event(b"", b'{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}', out)
    out.append(translator.finish(out))
    return CollectedAnswer(out)


def calls(told: CollectedAnswer) -> list[tuple[str, str, str]]:
    return [(*told.calls[index], told.texts[index]) for index in sorted(told.calls)]


@pytest.mark.parametrize("name", [None, "", "ls"])
def test_pieces_of_one_index_are_one_call_whatever_their_ids(name: str | None) -> None:
    told = play(
        piece(0, "a1", "ls"),
        *(piece(0, f"a{2 + at}", name, A[at : at + 2]) for at in range(0, len(A), 2)),
        piece(1, "b1", "ls", B[:4]),
        piece(1, "b2", name, B[4:]),
    )
    assert calls(told) == [("a1", "ls", A), ("b1", "ls", B)]


def test_the_second_id_of_a_call_is_its_own_to_the_end() -> None:
    told = play(piece(0, "a", "ls", A[:3]), piece(0, "z", "ls", A[3:]), piece(0, "z", "ls", ""))
    assert calls(told) == [("a", "ls", A)]


def test_a_call_that_is_named_late_keeps_the_first_id_that_came_with_arguments() -> None:
    late = play(piece(0, "a", None, A[:3]), piece(0, "z", None, A[3:]), piece(0, "y", "ls"))
    assert calls(late) == [("a", "ls", A)]
    nameless = play(piece(0, None, None, A[:3]), piece(0, "z", "ls", A[3:]))
    assert calls(nameless) == [("z", "ls", A)]


@pytest.mark.parametrize("index", [0, None])
def test_calls_that_share_an_index_or_have_none_are_told_apart_by_their_ids(index: int | None) -> None:
    fragments = [
        piece(index, "a", "ls"),
        piece(index, "a", None, A[:3]),
        piece(index, None, None, A[3:]),
        piece(index, "b", "ls"),
        piece(index, None, None, B[:3]),
        piece(index, "b", None, B[3:]),
        piece(index, "c", "cat", "{}"),
    ]
    assert calls(play(*fragments)) == [("a", "ls", A), ("b", "ls", B), ("c", "cat", "{}")]
    at_once = [piece(index, "a", "ls", A), piece(index, "b", "ls", B), piece(index, "c", "ls", "")]
    assert calls(play(at_once)) == [("a", "ls", A), ("b", "ls", B), ("c", "ls", "")]


def test_a_call_whose_name_is_still_to_come_does_not_take_in_the_next_one() -> None:
    told = play(piece(None, "a", None, A), piece(None, "b", "ls", B), piece(None, "a", "cat"))
    assert calls(told) == [("b", "ls", B), ("a", "cat", A)]


def test_interleaved_pieces_without_index_go_by_their_ids() -> None:
    told = play(
        piece(None, "a", "ls", A[:3]),
        piece(None, "b", "ls", B[:3]),
        piece(None, "a", None, A[3:]),
        piece(None, "b", None, B[3:]),
    )
    assert calls(told) == [("a", "ls", A), ("b", "ls", B)]


@pytest.mark.parametrize("index", [0, None])
def test_calls_with_neither_ids_nor_places_are_told_apart_by_their_arguments(index: int | None) -> None:
    told = play(
        piece(index, None, "ls", A[:3]),
        piece(index, None, "ls", A[3:]),
        piece(index, None, "ls"),
        piece(index, None, "ls", B),
    )
    assert [text for _, _, text in calls(told)] == [A, B]
    assert len({call_id for call_id, _, _ in calls(told)}) == 2
    together = play([piece(index, None, "ls"), piece(index, None, "cat")])
    assert [name for _, name, _ in calls(together)] == ["ls", "cat"]


def test_pieces_side_by_side_without_index_or_ids_keep_their_places() -> None:
    told = play(
        [piece(None, None, "ls"), piece(None, None, "ls")],
        [piece(text=A[:3]), piece(text=B[:3])],
        [piece(text=A[3:]), piece(text=B[3:])],
    )
    assert [text for _, _, text in calls(told)] == [A, B]


def test_an_index_that_grows_with_every_piece_does_not_cut_a_call() -> None:
    assert calls(play(piece(0, "a", "ls", A[:3]), piece(1, "a", None, A[3:]))) == [("a", "ls", A)]


def test_two_calls_never_share_an_id() -> None:
    told = play(piece(0, "same", "ls", A), piece(1, "same", "ls", B))
    assert [text for _, _, text in calls(told)] == [A, B]
    assert len({call_id for call_id, _, _ in calls(told)}) == 2


def test_an_id_that_comes_with_the_name_is_taken() -> None:
    assert calls(play(piece(0, text=A[:3]), piece(0, "a", "ls", A[3:]))) == [("a", "ls", A)]


@given(value=json_objects(letters('a"\\{}[] é', most=5)), cuts=st.lists(st.integers(1, 4)))
def test_arguments_are_complete_at_their_end_and_not_before(value: Any, cuts: list[int]) -> None:
    text = json.dumps(value)
    call = PendingCall(0, "a")
    assert not call.is_complete()
    at = 0
    for cut in cuts:
        if at + cut >= len(text):
            break
        call.try_pass_arguments(text[at : at + cut])
        at += cut
        assert not call.is_complete()
    call.try_pass_arguments(text[at:])
    assert call.is_complete()
    assert call.is_complete(), "and stay so"
