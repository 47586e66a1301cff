"""The folders of served conversations: what a kill leaves of one, and what is found there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.served_talk import ServedHouse, Talk


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHouse]:
    made = ServedHouse(tmp_path_factory.mktemp("house"))
    yield made
    made.close()


def test_a_session_from_elsewhere_has_a_record_before_it_has_a_worker(house: ServedHouse) -> None:
    made = house.all.new(str(house.work))

    async def talk() -> None:
        async with Talk(house, made) as talking:
            await talking.run("list the files")

    house.run(talk())
    house.run(house.all.remove(made.record.id))
    kept = Path(made.log_folder).parent / "conversation.json"
    assert not kept.parent.exists()
    again = house.all.conversation(made.record.id)
    assert not kept.exists(), "it was only looked at"
    house.run(again.wake())
    assert kept.exists()
    house.run(house.all.remove(made.record.id))


def test_a_folder_without_a_record_has_no_session_open(house: ServedHouse) -> None:
    made = [house.all.new(str(house.work)) for _ in range(2)]

    async def talk() -> None:
        for one in made:
            async with Talk(house, one) as talking:
                await talking.run("list the files")

    house.run(talk())
    house.restart(leave=False)
    folders = [Path(one.log_folder).parent for one in made]
    states = [(folder / "state.json").read_bytes() for folder in folders]
    for folder, state in zip(folders, reversed(states), strict=True):
        (folder / "state.json").write_bytes(state)
        (folder / "conversation.json").unlink()
    for one in made:
        assert house.all.conversation(one.record.id).record.id == one.record.id
        house.run(house.all.remove(one.record.id))


def test_what_a_kill_has_left_of_a_removed_conversation_goes_with_the_next_start(house: ServedHouse) -> None:
    left = house.agent_dir / "serve" / "conversations" / ".removed-one"
    (left / "events").mkdir(parents=True)
    house.restart(leave=False)
    assert not left.exists()
