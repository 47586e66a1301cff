"""Ids by chance and from a seed."""

from __future__ import annotations

import uuid

from pigeon.system.ids import RANDOM_IDS, Ids


def some(ids: Ids) -> list[str]:
    named = [ids.session_id(7), ids.entry_id(()), ids.request_id(), ids.dialog_id(), ids.folder_id()]
    return [*named, str(ids.random_fraction())]


def test_a_seed_gives_the_same_ids_again_and_others_each_time() -> None:
    first, second = Ids("one"), Ids("one")
    assert [some(first), some(first)] == [some(second), some(second)]
    assert not set(some(Ids("one"))) & set(some(Ids("two")))
    assert not set(some(RANDOM_IDS)) & set(some(RANDOM_IDS))


def test_kinds_do_not_depend_on_each_other() -> None:
    disturbed = Ids("one")
    disturbed.dialog_id()
    assert disturbed.entry_id(()) == Ids("one").entry_id(())


def test_ids_have_their_forms() -> None:
    for ids in (RANDOM_IDS, Ids("one")):
        session, dialog = uuid.UUID(ids.session_id(1_700_000_000_000)), uuid.UUID(ids.dialog_id())
        assert (session.version, dialog.version) == (7, 4)
        assert session.int >> 80 == 1_700_000_000_000
        assert 0 <= ids.random_fraction() <= 1
    taken = [Ids("one").entry_id(())]
    assert Ids("one").entry_id(taken) not in taken
