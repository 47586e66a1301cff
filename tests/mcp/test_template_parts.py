"""Templates of addresses, taken apart while they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.mcp.message_completion import match_template


@pytest.mark.parametrize(
    ("template", "uri", "part"),
    [
        ("note://{name}", "note://on", ("name", "note://", {"name": "on"})),
        ("a/{x}/b/{y}", "a/1/b/", ("y", "a/1/b/", {"x": "1", "y": ""})),
        ("a/{x}/b/{y}", "a/1", ("x", "a/", {"x": "1"})),
        ("a/{x}/b/{y}", "a/1/c", None),
        ("a/{x}/b", "a/1/b", None),
        ("f://{+path}", "f://a/b", ("path", "f://", {"path": "a/b"})),
        ("note://{?q}", "note://x", None),
        ("note://plain", "note://plain", None),
    ],
)
def test_the_part_of_a_template_that_is_being_written_is_found(
    template: str, uri: str, part: tuple[str, str, dict[str, str]] | None
) -> None:
    assert match_template(template, uri) == part


@given(st.text("{}+a/", max_size=40), st.text("a/", max_size=40))
def test_any_template_and_any_address_are_compared_in_no_time(template: str, uri: str) -> None:
    found = match_template(template * 20, uri * 20)
    assert found is None or (uri * 20).startswith(found[1])
