"""The folders of served conversations: what a kill leaves of one, and what is found there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pigeon.frontends.serve.conversation_record import ConversationFolders
from pigeon.wire.errors import StartupError
from support.served_conversations import InProcessService, ServiceClient


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    made = InProcessService(tmp_path_factory.mktemp("service"))
    yield made
    made.close()


def test_a_session_from_elsewhere_has_a_record_before_it_has_a_worker(service: InProcessService) -> None:
    made = service.all.create_conversation(str(service.work))

    async def talk() -> None:
        async with ServiceClient(service, made) as talking:
            await talking.run("list the files")

    service.run(talk())
    service.run(service.all.forget_conversation(made.record.id))
    kept = Path(made.log_folder).parent / "conversation.json"
    assert not kept.parent.exists()
    again = service.all.find_conversation(made.record.id)
    assert not kept.exists(), "it was only looked at"
    service.run(again.wake())
    assert kept.exists()
    service.run(service.all.forget_conversation(made.record.id))


def test_a_folder_without_a_record_has_no_session_open(service: InProcessService) -> None:
    made = [service.all.create_conversation(str(service.work)) for _ in range(2)]

    async def talk() -> None:
        for one in made:
            async with ServiceClient(service, one) as talking:
                await talking.run("list the files")

    service.run(talk())
    service.restart(leave=False)
    folders = [Path(one.log_folder).parent for one in made]
    states = [(folder / "state.json").read_bytes() for folder in folders]
    for folder, state in zip(folders, reversed(states), strict=True):
        (folder / "state.json").write_bytes(state)
        (folder / "conversation.json").unlink()
    for one in made:
        assert service.all.find_conversation(one.record.id).record.id == one.record.id
        service.run(service.all.forget_conversation(one.record.id))


def test_what_a_kill_has_left_of_a_removed_conversation_goes_with_the_next_start(service: InProcessService) -> None:
    left = service.agent_dir / "serve" / "conversations" / ".removed-one"
    (left / "events").mkdir(parents=True)
    service.restart(leave=False)
    assert not left.exists()


def test_a_second_server_for_the_same_folder_is_refused_and_says_how_to_reach_the_first(tmp_path: Path) -> None:
    lines = (
        "import sys",
        "from pigeon.frontends.serve.conversation_record import ConversationFolders",
        "ConversationFolders(sys.argv[1]).lock_and_clean_up()",
        "print('locked', flush=True)",
        "sys.stdin.read()",
    )
    command = [sys.executable, "-c", "\n".join(lines), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        with pytest.raises(StartupError, match=r"already serves .*\. `pigeon serve --link` prints a new link to it"):
            ConversationFolders(str(tmp_path)).lock_and_clean_up()
        first.communicate()
