from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pigeon.wire.base import merge_objects

OBJECTS = st.recursive(
    st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
LAYER = st.dictionaries(st.sampled_from("abc"), OBJECTS, max_size=3)


@given(LAYER, LAYER)
def test_merging_changes_neither_and_the_upper_one_counts(under: dict[str, Any], over: dict[str, Any]) -> None:
    before = json.dumps([under, over])
    both = merge_objects(under, over)
    assert json.dumps([under, over]) == before
    assert set(both) == {*under, *over}
    assert merge_objects(both, over) == both
    for key, value in over.items():
        assert isinstance(value, dict) or both[key] == value


def test_merging_goes_as_deep_as_both_are_objects() -> None:
    base = {"a": {"b": {"c": 1, "d": [1]}, "e": None}, "f": 1}
    over = {"a": {"b": {"d": [2], "g": {}}, "e": {"h": 1}}, "f": {"i": 1}}
    assert merge_objects(base, over) == {"a": {"b": {"c": 1, "d": [2], "g": {}}, "e": {"h": 1}}, "f": {"i": 1}}
