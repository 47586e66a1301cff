"""What servers answer, before the package looks at it: wrong entries cost no others, and lists have an end."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.mcp.connector.pipes import RequestPace, ServerPipes
from pigeon.mcp.connector.results import Cutter
from pigeon.mcp.connector.trimming import MOST_BLOCKS, MOST_TOOLS, is_too_deep, strip_hidden_chars, trim_message

ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
LISTS = {"tools": types.ListToolsResult, "prompts": types.ListPromptsResult, "resources": types.ListResourcesResult}
KEYS = st.sampled_from(
    ["name", "description", "inputSchema", "outputSchema", "annotations", "arguments", "uri", "icons"]
)


def result_of(**result: Any) -> dict[str, Any]:
    message = trim_message(types.JSONRPCResponse(jsonrpc="2.0", id=1, result=result))
    found: dict[str, Any] = message.result
    return found


@pytest.mark.parametrize("key", LISTS)
@given(st.lists(ODD | st.dictionaries(KEYS, ODD), max_size=5))
def test_any_list_is_one_that_the_package_takes(key: str, entries: list[Any]) -> None:
    good = {"name": "good", "uri": "x://good", "inputSchema": {"type": "object"}}
    taken = LISTS[key].model_validate(result_of(**{key: [*entries, good]}))
    assert getattr(taken, key)[-1].name == "good"


@given(
    st.lists(
        ODD
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["text", "image", "audio", "resource_link", "resource", "x"])},
            optional={"text": ODD, "data": ODD, "resource": st.dictionaries(st.sampled_from(["uri", "text"]), ODD)},
        )
    )
)
def test_any_content_is_one_that_the_package_takes(blocks: list[Any]) -> None:
    taken = types.CallToolResult.model_validate(result_of(content=blocks))
    assert len(taken.content) == len(blocks)


def test_schemas_of_results_are_not_looked_at_and_those_of_arguments_are_objects_of_some_depth() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    given = [
        {"name": "a", "inputSchema": {"anyOf": [{}]}, "outputSchema": {"properties": {"x": {"pattern": "^(a+)+$"}}}},
        {"name": "b", "inputSchema": {"type": "string"}},
        {"name": "c", "inputSchema": deep},
        {"name": "d", "inputSchema": None},
    ]
    found = result_of(tools=given)["tools"]
    assert found[0] == {"name": "a", "inputSchema": {"anyOf": [{}], "type": "object"}}
    assert [one["inputSchema"] for one in found[1:]] == [{"type": "object"}] * 3
    assert not is_too_deep({"type": "object", "properties": {"a": {"type": "string"}}})


def test_lists_and_contents_without_end_are_cut() -> None:
    tool = {"name": "x", "inputSchema": {}}
    assert len(result_of(tools=[tool] * 100_000)["tools"]) == MOST_TOOLS + 1
    assert len(result_of(content=[{"type": "text", "text": "b"}] * 100_000)["content"]) == MOST_BLOCKS + 1


def test_signs_that_nobody_sees_are_left_out() -> None:
    hidden = "a\x1b[2Jb\x00\u202ec\U000e0041\nd\te\u00a0\u200df"
    assert strip_hidden_chars(hidden) == "a[2Jbc\nd\te\u00a0\u200df"
    assert result_of(tools=[{"name": "x", "description": "\x1b]0;t\x07"}])["tools"][0]["description"] == "]0;t"


async def test_an_answer_that_cannot_be_read_is_a_failure_of_what_it_answers() -> None:
    pipes = ServerPipes(-1, -1, -1, lambda: None)
    for text in (b'"result":null}', b'"result":{"a":NaN}}', b'"result":{"a":' + b"[" * 100_000):
        message = pipes._parse_message(b'{"jsonrpc":"2.0","id":7,' + text)
        assert message is not None
        assert isinstance(message.message, types.JSONRPCError)
        assert message.message.id == 7
    assert pipes._parse_message(b"Welcome!") is None
    assert pipes.first_garbage.startswith('{"jsonrpc"')


def test_a_server_that_asks_without_end_is_read_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pigeon.mcp.connector.pipes.time.monotonic", lambda: 100.0)
    pace = RequestPace()
    pauses = [pace.count_and_get_pause() for _ in range(100)]
    assert pauses[:50] == [0.0] * 50
    assert pauses[-1] == pytest.approx(1.0)


def test_an_answer_of_many_blocks_ends_with_what_was_left_out() -> None:
    cutter = Cutter()
    for number in range(MOST_BLOCKS + 1):
        cutter.add_text(f"{number}")
    assert [getattr(block, "text", None) for block in cutter.blocks()] == [f"{number}" for number in range(MOST_BLOCKS)]
