"""What hosts ask about the entries of a session: totals, how full the context is, the tree, and its name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.session.history.entry_line import EntryLine, line_from_bytes, line_from_entry
from pigeon.session.history.views import (
    clean_name,
    context_usage,
    encode_entries,
    encode_stats,
    encode_tree,
    session_name_of,
    stats_of,
)
from pigeon.session.switching import encode_fork_messages
from pigeon.wire import codec
from pigeon.wire.answers import ContextUsage, Entries, ForkMessages, SessionStats, Tree
from pigeon.wire.base import ABSENT
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    LabelEntry,
    SessionInfo,
    UsageEntry,
)
from pigeon.wire.errors import Refusal
from pigeon.wire.messages import AssistantMessage
from pigeon.wire.model import Cost, Usage
from support.model_requests import a_model, assistant_message, text_block, tool_call, tool_result
from support.sessions import user
from support.strategies import empty_journal


def usage_of(number: int, total: float = 0.0) -> Usage:
    """Four counts that are told apart in every sum."""
    cost = Cost(total=total)
    return Usage(input=number, output=number * 10, cache_read=number * 100, cache_write=number * 1000, cost=cost)


def answer_with_usage(usage: Usage, *blocks: Any) -> AssistantMessage:
    message = assistant_message(*(blocks or [text_block("hello")]))
    message.usage = usage
    return message


def test_everything_that_was_billed_is_counted_on_every_branch() -> None:
    journal = empty_journal()
    journal.append_message(user("one"))
    journal.append_message(answer_with_usage(usage_of(1, 0.5), tool_call("c1"), text_block("and"), tool_call("c2")))
    result = tool_result("c1", "done")
    result.usage = usage_of(2, 0.25)
    journal.append_message(result)
    journal.append_message(tool_result("c2", "done"))
    journal.set_leaf(None)
    journal.append_message(user("two"))
    journal.append_message(answer_with_usage(usage_of(4, 1)))
    journal.append(CompactionEntry, summary="s", first_kept_entry_id="", tokens_before=1, usage=usage_of(8, 0.25))
    journal.append(BranchSummaryEntry, from_id="root", summary="s", usage=usage_of(16))
    journal.append(CompactionEntry, summary="of an extension", first_kept_entry_id="", tokens_before=1)
    journal.append(CustomEntry, custom_type="x")
    of_pi = UsageEntry(id="u", parent_id=None, timestamp="", kind="x", provider="p", model="m", usage=usage_of(32))
    stats = stats_of("id", "/file", [*journal.lines, line_from_entry(of_pi, bytes)])
    assert (stats.session_id, stats.session_file, stats.context_usage) == ("id", "/file", ABSENT)
    assert (stats.user_messages, stats.assistant_messages, stats.total_messages) == (2, 2, 6)
    assert (stats.tool_calls, stats.tool_results) == (2, 2)
    tokens = stats.tokens
    assert (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write) == (63, 630, 6_300, 63_000)
    assert tokens.total == 63 + 630 + 6_300 + 63_000
    assert stats.cost == 2
    assert isinstance(stats.cost, int), "as JSON prints it"
    assert stats_of("id", None, []).session_file is ABSENT


def test_the_context_is_as_full_as_its_last_count_says() -> None:
    journal = empty_journal()
    journal.append_message(user("one"))
    journal.append_message(assistant_message(text_block("hello"), tokens=500))
    model = a_model(context_window=2_000)
    assert context_usage(journal.branch, model) == ContextUsage(tokens=500, context_window=2_000, percent=25)
    assert context_usage(journal.branch, None) is ABSENT
    assert context_usage(journal.branch, a_model(context_window=0)) is ABSENT
    assert context_usage([], model) == ContextUsage(tokens=0, context_window=2_000, percent=0)


def test_nobody_knows_how_full_it_is_between_a_compaction_and_the_next_answer() -> None:
    journal = empty_journal()
    journal.append_message(user("one"))
    journal.append_message(assistant_message(text_block("hello"), tokens=500))
    journal.append(CompactionEntry, summary="s", first_kept_entry_id="", tokens_before=500)
    journal.append_message(user("two"))
    unknown = context_usage(journal.branch, a_model(context_window=2_000))
    assert unknown == ContextUsage(tokens=None, context_window=2_000, percent=None)
    journal.append_message(assistant_message(text_block("again"), tokens=100))
    known = context_usage(journal.branch, a_model(context_window=2_000))
    assert known is not ABSENT
    assert known.tokens is not None  # type: ignore[union-attr]


def line(id: str, parent: str | None, timestamp: str = "1", **more: Any) -> EntryLine:
    plain = {"type": "custom", "id": id, "parentId": parent, "timestamp": timestamp, "customType": "x", **more}
    found = line_from_bytes(codec.encode(plain))
    assert found is not None
    return found


def tree_of(lines: list[EntryLine]) -> Any:
    answer = json.loads(b"".join(encode_tree(lines, "leaf")))
    assert answer["leafId"] == "leaf"
    return answer["tree"]


def shape(nodes: list[Any]) -> Any:
    return {node["entry"]["id"]: shape(node["children"]) for node in nodes}


def test_children_stand_by_time_and_roots_in_their_order() -> None:
    tree = tree_of(
        [line("a", None), line("late", "a", "3"), line("early", "a", "2"), line("x", "late"), line("b", None)]
    )
    assert shape(tree) == {"a": {"early": {}, "late": {"x": {}}}, "b": {}}
    assert list(shape(tree)["a"]) == ["early", "late"]
    assert list(shape(tree)) == ["a", "b"]


def test_an_orphan_and_an_entry_that_hangs_on_itself_are_roots() -> None:
    assert shape(tree_of([line("a", "gone"), line("b", "b"), line("c", "a")])) == {"a": {"c": {}}, "b": {}}


def test_the_last_label_of_an_entry_counts_and_an_empty_one_takes_it_away() -> None:
    journal = empty_journal()
    ids = [journal.append_message(user(name)).id for name in ("a", "b", "c")]
    journal.append(LabelEntry, target_id=ids[0], label="first")
    last = journal.append(LabelEntry, target_id=ids[0], label="second")
    journal.append(LabelEntry, target_id=ids[1], label="gone")
    journal.append(LabelEntry, target_id=ids[1])
    (root,) = tree_of(journal.lines)
    (second,) = root["children"]
    (third,) = second["children"]
    assert (root["label"], root["labelTimestamp"]) == ("second", last.timestamp)
    assert set(second) == set(third) == {"entry", "children"}


def test_an_id_that_stands_twice_is_one_node() -> None:
    doubled = [one for name, above in (("a", None), ("b", "a"), ("c", "b")) for one in (line(name, above),) * 2]
    assert shape(tree_of(doubled)) == {"a": {"b": {"c": {}}}}


@given(st.lists(st.integers(-1, 30), max_size=30))
def test_the_tree_has_every_entry_below_its_parent(parents: list[int]) -> None:
    lines = [line(str(at), None if above < 0 else str(above % (at + 1))) for at, above in enumerate(parents)]
    places: dict[str, str | None] = {}

    def walk(nodes: list[Any], above: str | None) -> None:
        for node in nodes:
            places[node["entry"]["id"]] = above
            walk(node["children"], node["entry"]["id"])

    walk(tree_of(lines), None)
    assert places == {one.id: None if one.parent_id == one.id else one.parent_id for one in lines}


def test_a_chain_of_any_length_is_a_tree_and_a_list() -> None:
    count = 100_000
    chain = [line(str(at), str(at - 1) if at else None) for at in range(count)]
    tree = b"".join(encode_tree(chain, None))
    assert tree.count(b'"children":[') == count
    assert tree.endswith(b'"children":[]' + b"}]" * (count - 1) + b'}],"leafId":null}')
    assert len(json.loads(b"".join(encode_entries(chain, None)))["entries"]) == count


def test_a_number_that_is_too_large_loses_neither_its_message_nor_the_page() -> None:
    """Programs without numbers of any length write null in its place."""
    call = {"type": "toolCall", "id": "t", "name": "read", "arguments": {"path": "n", "big": "BIG", "far": "FAR"}}
    message = codec.encode(assistant_message()).replace(b'"content":[]', b'"content":[' + codec.encode(call) + b"]")
    raw = b'{"type":"message","id":"a","parentId":null,"timestamp":"1","message":' + message + b"}"
    found = line_from_bytes(raw.replace(b'"BIG"', b"-" + b"9" * 10_000).replace(b'"FAR"', b"1e999"))
    assert found is not None
    assert found.message is not None
    (block,) = found.message.content
    assert block.arguments == {"path": "n", "big": None, "far": None}  # type: ignore[union-attr]
    assert found.to_plain()["message"]["content"] == [{**call, "arguments": {"path": "n", "big": None, "far": None}}]
    assert b"9" * 10_000 in found.raw, "the file stays as it is"


def test_a_flat_tree_has_the_same_nodes_in_one_list() -> None:
    journal = empty_journal()
    ids = [journal.append_message(user(name)).id for name in ("a", "b", "c")]
    journal.append(LabelEntry, target_id=ids[1], label="here")
    flat = json.loads(b"".join(encode_tree(journal.lines, "leaf", flat=True)))["tree"]
    nested = tree_of(journal.lines)
    for node in flat:
        (other,) = nested
        assert node == {**other, "children": []}
        nested = other["children"]
    assert nested == []
    chain = [line(str(at), str(at - 1) if at else None) for at in range(5_000)]
    assert len(json.loads(b"".join(encode_tree(chain, None, flat=True)))["tree"]) == 5_000
    assert b"".join(encode_tree([], None, flat=True)) == b'{"tree":[],"leafId":null}'


def test_pieces_have_the_shape_of_the_declared_answers() -> None:
    journal = empty_journal()
    journal.append_message(user("a"))
    lines, leaf = journal.lines, journal.leaf_id
    codec.convert(codec.decode(b"".join(encode_entries(lines, leaf))), Entries)
    codec.convert(codec.decode(b"".join(encode_tree(lines, leaf))), Tree)
    codec.convert(codec.decode(b"".join(encode_stats("id", None, lines, ABSENT))), SessionStats)
    codec.convert(codec.decode(b"".join(encode_fork_messages(lines))), ForkMessages)
    assert [b"".join(encode_entries([], None)), b"".join(encode_tree([], None))] == [
        b'{"entries":[],"leafId":null}',
        b'{"tree":[],"leafId":null}',
    ]


@pytest.mark.parametrize(("given", "kept"), [("  two\r\n\n words\t", "two  words"), ("a\nb", "a b"), ("x", "x")])
def test_a_name_is_one_line(given: str, kept: str) -> None:
    assert clean_name(given) == kept


@pytest.mark.parametrize("given", ["", " \n ", "\r\n"])
def test_a_name_must_say_something(given: str) -> None:
    with pytest.raises(Refusal, match="cannot be empty"):
        clean_name(given)


def test_the_name_that_was_given_last_counts_and_an_empty_one_is_none() -> None:
    journal = empty_journal()
    assert session_name_of(journal.lines) is None
    journal.append(SessionInfo, name="first")
    journal.append_message(user("hi"))
    assert session_name_of(journal.lines) == "first"
    journal.append(SessionInfo, name="second")
    assert session_name_of(journal.lines) == "second"
    journal.append(SessionInfo, name="")
    assert session_name_of(journal.lines) is None
    odd = line_from_bytes(b'{"type":"session_info","id":"o","name":5}')
    assert odd is not None
    assert session_name_of([*journal.lines, odd]) is None
