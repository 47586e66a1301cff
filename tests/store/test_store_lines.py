"""What stores derive from lines: any bytes have facts, and words are found by their beginnings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pigeon.store.lines import has_all_words, read_entry_facts, split_words
from pigeon.wire import codec


@given(st.binary())
def test_no_bytes_are_too_strange(line: bytes) -> None:
    read_entry_facts(line)


@given(st.text())
def test_each_word_of_a_text_is_found_in_it_by_its_beginning(text: str) -> None:
    words = split_words(text)
    assert has_all_words(text, words)
    assert has_all_words(text.swapcase() if text.isascii() else text, [word[:2] for word in words])
    assert not any(" " in word or "'" in word or "\\" in word for word in words)


@given(st.text(alphabet=st.characters()))
def test_texts_can_be_stored_in_any_database(text: str) -> None:
    line = codec.encode(
        {"type": "message", "message": {"role": "user", "content": text.encode("utf-8", "replace").decode()}}
    )
    facts = read_entry_facts(line)
    assert "\0" not in facts.text + facts.prompt
    facts.text.encode()


def test_what_a_tool_returned_is_not_searched() -> None:
    line = b'{"type":"message","message":{"role":"toolResult","content":[{"type":"text","text":"much"}]}}'
    assert read_entry_facts(line).text == ""
