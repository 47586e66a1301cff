"""The reference of the library says what the docstrings say, of everything that `pigeon` exports."""

from __future__ import annotations

import re

import pytest
from library_reference import PAGE, ParsedDoc, options_of, page, signature_of

import pigeon
from support.source_tree import ROOT


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text("utf-8")


def test_the_page_is_what_the_docstrings_say(text: str) -> None:
    assert page() == text, "run: make docs"


def test_every_exported_name_is_on_the_page(text: str) -> None:
    shown = set(re.findall(r"^### (\w+)$|\*\*(\w+)\*\*|^\| `(\w+)` \|", text, re.MULTILINE))
    names = {name for found in shown for name in found}
    unions = {"Event", "StreamEvent", "Message", "DialogRequest", "ConversationEvent", "Conversation"}
    assert set(pigeon.__all__) - names - unions - {"__version__"} == set()


def test_every_link_to_a_record_leads_to_one(text: str) -> None:
    linked = set(re.findall(r"\(#(record-\w+)\)", text))
    assert linked <= set(re.findall(r'<a id="(record-\w+)">', text))


def test_the_page_is_a_target_of_make_docs() -> None:
    assert "scripts/library_reference.py" in (ROOT / "Makefile").read_text("utf-8")


def test_a_docstring_is_taken_apart() -> None:
    class Thing:
        """One sentence.

        Args:
            one: first
                and more
            other: second

        The end.
        """

        def __init__(self, *, one: int = 1, third: str = "") -> None: ...

    doc = ParsedDoc(Thing, "Thing")
    assert doc.entries == {"one": "first and more", "other": "second"}
    assert doc.text == "One sentence.\n\nThe end."
    with pytest.raises(ValueError, match=r"does not say .* third"):
        options_of(Thing)


def test_a_signature_is_shown_as_it_is_called() -> None:
    def function(text: str, *, limit: int = 5, **more: str) -> list[str]: ...

    assert signature_of(function, "f") == "f(text: str, *, limit: int = 5, **more) -> list[str]"
