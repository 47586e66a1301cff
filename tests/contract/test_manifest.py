"""The contract holds together: no behaviour without a test, no test without a behaviour, no page gone stale."""

from __future__ import annotations

from collections import Counter, defaultdict

from support.contract import (
    DIALECTS,
    PAGE,
    SOURCES,
    behaviours,
    divergences,
    divergences_page,
    proofs,
)

MOST_RESTATEMENTS = 2
KNOWN = {behaviour.id: behaviour for behaviour in behaviours()}


def test_ids_are_unique_and_words_are_known() -> None:
    assert not [name for name, count in Counter(one.id for one in behaviours()).items() if count > 1]
    for behaviour in behaviours():
        assert behaviour.source, behaviour.id
        assert set(behaviour.source) <= set(SOURCES), behaviour.id
        assert set(behaviour.dialects) | set(behaviour.later) <= set(DIALECTS), behaviour.id
        assert not set(behaviour.dialects) & set(behaviour.later), behaviour.id
        assert behaviour.dialects or behaviour.later, behaviour.id
        assert behaviour.says, behaviour.id


def test_every_behaviour_has_a_test_in_each_of_its_dialects() -> None:
    shown: defaultdict[str, set[str]] = defaultdict(set)
    for proof in proofs():
        for name, dialect in proof.pairs():
            shown[name].add(dialect)
    missing = {one.id: sorted(set(one.dialects) - shown[one.id]) for one in behaviours()}
    assert {name: dialects for name, dialects in missing.items() if dialects} == {}


def test_every_contract_test_says_what_it_proves() -> None:
    assert [proof.test for proof in proofs() if not proof.ids] == []


def test_a_contract_test_proves_one_promise() -> None:
    several = {test: count for test, count in Counter(proof.test for proof in proofs()).items() if count > 1}
    several |= {proof.test: len(proof.ids) for proof in proofs() if len(proof.ids) > 1}
    assert several == {}, "one test for each; `same` is for restatements of one promise in other documents"
    assert [proof.test for proof in proofs() if len(proof.same) > MOST_RESTATEMENTS] == []


def test_a_promise_is_proved_by_one_test_in_each_dialect() -> None:
    shown: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for proof in proofs():
        for pair in proof.pairs():
            shown[pair].append(proof.test)
    assert {pair: tests for pair, tests in shown.items() if len(tests) > 1} == {}


def test_nothing_unknown_is_proved() -> None:
    assert {proof.test: name for proof in proofs() for name in (*proof.ids, *proof.same) if name not in KNOWN} == {}


def test_what_is_proved_is_not_called_planned() -> None:
    early = {
        proof.test: (name, dialect)
        for proof in proofs()
        for name, dialect in proof.pairs()
        if name in KNOWN and dialect not in KNOWN[name].dialects
    }
    assert early == {}, "move these dialects from `later` to `dialects`"


def test_divergences_have_a_behaviour_and_the_page_is_fresh() -> None:
    assert not [name for name, count in Counter(one.id for one in divergences()).items() if count > 1]
    assert [one.id for one in divergences() if one.id not in KNOWN] == []
    assert PAGE.read_text("utf-8") == divergences_page(), "run in tests/: python -m support.contract"
