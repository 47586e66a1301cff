"""Which model and which thinking level are in use: chosen, cycled, restored from a conversation, and on record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pigeon.session.context.transcript import Transcript
from pigeon.session.history.journal import Journal
from pigeon.session.hooks import NoHooks
from pigeon.session.model_choice import ModelChoice, ModelOptions, ScopedModel, find_last_choice
from pigeon.wire.entries import ModelChange, ThinkingLevelChange
from pigeon.wire.errors import Refusal
from pigeon.wire.events import Outbound, ThinkingLevelChanged
from pigeon.wire.model import Model
from support.model_requests import a_model, assistant_message, text_block
from support.session_setup import KnownModels
from support.sessions import user
from support.strategies import empty_journal

ONE = a_model(id="one", reasoning=True)
TWO = a_model(id="two", reasoning=False)
THREE = a_model(id="three", reasoning=True)


class Heard(NoHooks):
    """Notes which model an extension would be told of."""

    def __init__(self) -> None:
        self.selected: list[str] = []

    def on_model_selected(self, model: Model, previous: Model | None, source: Any) -> None:
        self.selected.append(f"{previous.id if previous else None} -> {model.id} by {source}")


class Chosen:
    """A choice between three models, with its record (`entries`), its announcements and what extensions heard."""

    def __init__(
        self,
        model: Model | None = ONE,
        available: Sequence[Model] = (ONE, TWO, THREE),
        journal: Journal | None = None,
        **options: Any,
    ) -> None:
        self.journal = journal or empty_journal()
        self.hooks = Heard()
        self.posted: list[Outbound] = []
        self.warnings: list[str] = []
        given = ModelOptions(source=KnownModels(*available), model=model, **{"thinking": "low", **options})
        self.choice = ModelChoice(given, Transcript(self.journal), self.hooks, self.posted.append, self.warnings.append)

    def entries(self) -> list[str]:
        found = [line.entry for line in self.journal.branch]
        return [entry.model_id if isinstance(entry, ModelChange) else entry.thinking_level for entry in found]  # type: ignore[union-attr]

    def levels(self) -> list[str]:
        for event in self.posted:
            assert isinstance(event, ThinkingLevelChanged)
            assert event.level == event.thinking_level
        return [str(event.level) for event in self.posted]  # type: ignore[union-attr]


def test_a_new_conversation_begins_with_the_choice_on_record() -> None:
    chosen = Chosen()
    chosen.choice.record_choice()
    assert chosen.entries() == ["one", "low"]
    without = Chosen(model=None)
    without.choice.record_choice()
    assert without.entries() == ["off"], "no model thinks"
    assert chosen.posted == without.posted == []


def test_a_model_is_chosen_by_name_and_put_on_record() -> None:
    chosen = Chosen()
    assert chosen.choice.select_model("here", "three") is THREE
    assert chosen.choice.model is THREE
    assert chosen.entries() == ["three"]
    assert chosen.hooks.selected == ["one -> three by set"]
    assert chosen.posted == []


@pytest.mark.parametrize(("provider", "name"), [("here", "four"), ("there", "one")])
def test_a_name_that_is_not_there_is_refused_and_changes_nothing(provider: str, name: str) -> None:
    chosen = Chosen()
    with pytest.raises(Refusal, match=f"Model not found: {provider}/{name}"):
        chosen.choice.select_model(provider, name)
    assert chosen.choice.model is ONE
    assert chosen.entries() == []


def test_the_model_in_use_can_be_chosen_even_if_it_is_not_listed() -> None:
    chosen = Chosen(available=[TWO])
    assert chosen.choice.select_model("here", "one") is ONE
    assert chosen.entries() == ["one"]
    with pytest.raises(Refusal):
        chosen.choice.select_model("there", "one")
    with pytest.raises(Refusal):
        Chosen(model=None, available=[]).choice.select_model("here", "one")


def test_the_wanted_level_comes_back_with_a_model_that_can_do_it() -> None:
    chosen = Chosen()
    chosen.choice.select_model("here", "two")
    assert chosen.choice.level == "off"
    chosen.choice.set_level("high")
    assert chosen.choice.level == "off"
    chosen.choice.select_model("here", "three")
    assert chosen.choice.level == "high"
    assert chosen.levels() == ["off", "high"]
    assert chosen.entries() == ["two", "off", "three", "high"]


def test_a_level_that_is_already_in_force_is_neither_recorded_nor_announced() -> None:
    chosen = Chosen()
    chosen.choice.set_level("low")
    assert (chosen.entries(), chosen.posted) == ([], [])
    chosen.choice.set_level("medium")
    assert (chosen.entries(), chosen.levels()) == (["medium"], ["medium"])


def test_levels_cycle_and_wrap_and_a_model_without_thinking_has_none() -> None:
    chosen = Chosen(thinking="off")
    levels = chosen.choice.levels()
    assert levels[0] == "off"
    assert [chosen.choice.cycle_level() for _ in levels] == [*levels[1:], "off"]
    assert Chosen(model=TWO).choice.cycle_level() is None
    assert Chosen(model=None).choice.cycle_level() is None
    assert Chosen(model=None).choice.levels() == ["off"]


def test_models_cycle_in_their_order_and_wrap() -> None:
    chosen = Chosen(model=TWO)
    found = [chosen.choice.cycle() for _ in range(3)]
    assert [one.model.id for one in found if one] == ["three", "one", "two"]
    assert [one.thinking_level for one in found if one] == ["low", "low", "off"]
    assert [one.is_scoped for one in found if one] == [False] * 3
    assert chosen.hooks.selected[0] == "two -> three by cycle"


@pytest.mark.parametrize("model", [None, a_model(id="other")])
def test_cycling_begins_with_the_first_where_the_model_in_use_is_not_among_them(model: Model | None) -> None:
    found = Chosen(model=model).choice.cycle()
    assert found is not None
    assert found.model is ONE


@pytest.mark.parametrize("available", [[], [ONE]])
def test_there_must_be_two_models_to_cycle(available: list[Model]) -> None:
    chosen = Chosen(available=available)
    assert chosen.choice.cycle() is None
    assert (chosen.choice.model, chosen.entries()) == (ONE, [])


def test_cycling_keeps_to_the_models_it_was_told_and_to_their_levels() -> None:
    gone = a_model(id="gone", reasoning=True)
    scoped = [ScopedModel(ONE), ScopedModel(gone), ScopedModel(THREE, "high")]
    chosen = Chosen(scoped=scoped)
    found = [chosen.choice.cycle() for _ in range(2)]
    assert [(one.model.id, one.thinking_level, one.is_scoped) for one in found if one] == [
        ("three", "high", True),
        ("one", "high", True),
    ]
    assert Chosen(scoped=[ScopedModel(ONE), ScopedModel(gone)]).choice.cycle() is None


def journal_with(*entries: Any) -> Journal:
    """A journal of models (`provider/id`), levels (`=level`), and answers (by a model)."""
    journal = empty_journal()
    for entry in entries:
        if isinstance(entry, Model):
            journal.append_message(assistant_message(text_block("hello"), by=entry))
        elif entry.startswith("="):
            journal.append(ThinkingLevelChange, thinking_level=entry[1:])
        elif "/" in entry:
            provider, _, name = entry.partition("/")
            journal.append(ModelChange, provider=provider, model_id=name)
        else:
            journal.append_message(user(entry))
    return journal


@pytest.mark.parametrize(
    ("entries", "reference", "level"),
    [
        ([], None, None),
        (["hi"], None, None),
        (["here/one", "=low"], ("here", "one"), "low"),
        (["here/one", "=low", "here/two", "=high"], ("here", "two"), "high"),
        (["=low", "hi", ONE], ("here", "one"), "low"),
        (["here/two", ONE], ("here", "one"), None),
        ([ONE, "here/two"], ("here", "two"), None),
        (["=medium", "here/one", "hi", "hi"], ("here", "one"), "medium"),
        (["here/one", "=enormous"], ("here", "one"), None),
    ],
)
def test_a_path_ends_with_the_model_and_the_level_that_were_used_last(
    entries: list[Any], reference: Any, level: Any
) -> None:
    assert find_last_choice(journal_with(*entries).branch) == (reference, level)


def test_a_conversation_brings_back_what_it_used_last() -> None:
    chosen = Chosen(journal=journal_with("here/three", "=high"))
    chosen.choice.restore(chosen.journal.branch)
    assert (chosen.choice.model, chosen.choice.level) == (THREE, "high")
    assert chosen.hooks.selected == ["one -> three by restore"]
    assert chosen.levels() == ["high"]
    assert len(chosen.journal.branch) == 2, "what is on record already is not recorded again"


def test_what_a_conversation_used_is_not_told_again_where_it_is_in_use() -> None:
    chosen = Chosen(journal=journal_with("here/one", "=low"))
    chosen.choice.restore(chosen.journal.branch)
    assert (chosen.hooks.selected, chosen.posted) == ([], [])


def test_a_model_that_is_gone_leaves_the_one_in_use() -> None:
    chosen = Chosen(journal=journal_with("here/gone", "=high"))
    chosen.choice.restore(chosen.journal.branch)
    assert (chosen.choice.model, chosen.choice.level) == (ONE, "high")
    assert chosen.hooks.selected == []
    alone = Chosen(model=None, available=[], journal=journal_with("here/gone"))
    alone.choice.restore(alone.journal.branch)
    assert alone.choice.model is None


def test_a_model_that_was_named_at_the_start_wins_over_the_conversation() -> None:
    chosen = Chosen(journal=journal_with("here/three", "=high"), explicit=True)
    chosen.choice.restore(chosen.journal.branch)
    assert (chosen.choice.model, chosen.choice.level) == (ONE, "high")


def test_a_conversation_without_a_level_gets_the_present_one_on_record() -> None:
    chosen = Chosen(journal=journal_with("hi"))
    chosen.choice.restore(chosen.journal.branch)
    entry = chosen.journal.branch[-1].entry
    assert isinstance(entry, ThinkingLevelChange)
    assert (entry.thinking_level, chosen.posted) == ("low", [])


def test_a_restored_level_is_remembered_beyond_a_model_that_cannot_do_it() -> None:
    chosen = Chosen(journal=journal_with("here/two", "=high"))
    chosen.choice.restore(chosen.journal.branch)
    assert (chosen.choice.model, chosen.choice.level) == (TWO, "off")
    chosen.choice.select_model("here", "one")
    assert chosen.choice.level == "high"


def test_a_conversation_whose_model_is_gone_says_what_it_continues_with() -> None:
    before = Chosen(ONE)
    before.choice.record_choice()
    after = Chosen(TWO, (TWO,), before.journal)
    after.choice.restore(after.journal.branch)
    (warning,) = after.warnings
    assert f"This conversation used {ONE.reference}, " in warning
    assert warning.endswith(f"it continues with {TWO.reference}")
    again = Chosen(TWO, (ONE, TWO), before.journal)
    again.choice.restore(again.journal.branch)
    assert again.warnings == []
