"""Folders of a recording in the answers of a replay, in whatever pieces they come."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from pigeon.agent.inference import BlockClosed, BlockGrew, BlockOpened, Delta, Finished, ModelRequest
from pigeon.providers.recording.folders import FolderNames, MovedProvider
from support.model_requests import a_model, a_request

NAMES = FolderNames({"cwd": "/a/work", "home": "/a/wo", "root": "/"}, {"cwd": "/b/other", "home": "/h", "root": "/x"})


class Saying:
    def __init__(self, pieces: list[str], closes: bool) -> None:
        self._pieces = pieces
        self._closes = closes

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield BlockOpened(0, "text")
        for piece in self._pieces:
            yield BlockGrew(0, piece)
        if self._closes:
            yield BlockClosed(0)
        yield Finished(stop="stop")


def test_a_name_is_replaced_where_it_is_not_part_of_a_longer_one() -> None:
    text = "/a/work/x /a/work. /a/works /a/wo/y /a/work-1 /etc"
    assert NAMES.replace_folders(text) == "/b/other/x /b/other. /a/works /h/y /a/work-1 /etc"
    assert not FolderNames({"cwd": "/same"}, {"cwd": "/same"}).has_differences


PIECES = ["/a", "/work", "/wo", "rk", "/", "x", " ", "/a/work", "-1", "."]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.booleans())
async def test_pieces_give_the_same_text_as_the_whole(pieces: list[str], closes: bool) -> None:
    moved = MovedProvider(Saying(pieces, closes), NAMES).stream(a_request(a_model()))
    grown = [delta.text async for delta in moved if isinstance(delta, BlockGrew)]
    assert "".join(grown) == NAMES.replace_folders("".join(pieces))
