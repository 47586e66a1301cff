"""Images on their way into the conversation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pigeon.agent.interfaces import PreparedImage
from pigeon.agent.scope import Scope
from pigeon.session.context.images import STOPPED, prepare_images
from pigeon.wire.content import Attachment, ImageContent, TextContent, UserBlock, has_images
from pigeon.wire.messages import CustomMessage, UserMessage
from support.model_requests import PNG

OTHER = ImageContent(data="b3RoZXI=", mime_type="image/png")


def verdict(image: ImageContent | None, *notes: str, readable: bool = True) -> PreparedImage:
    return PreparedImage(image, notes, readable)


class Judge:
    """Says at once what it is told to say at once, and the rest when it has worked on it."""

    def __init__(self, at_once: PreparedImage | None, later: PreparedImage | None = None) -> None:
        self._at_once = at_once
        self._later = later
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def prepare_quickly(self, image: ImageContent) -> Any:
        return self._at_once

    async def fit_image(self, image: ImageContent) -> Any:
        await self.goes_on.wait()
        return self._later


def user_message(*blocks: UserBlock) -> UserMessage:
    return UserMessage(content=list(blocks), timestamp=1)


def text(words: str) -> TextContent:
    return TextContent(text=words)


async def test_a_message_without_trouble_is_the_very_same() -> None:
    message = user_message(text("look"), PNG)
    assert has_images(message.content)
    assert await prepare_images(message, Judge(verdict(PNG)), False, None) is message
    assert not has_images(user_message(text("words")).content)
    assert not has_images("words")


async def test_a_changed_image_takes_the_place_of_the_first_with_a_note_behind_the_text() -> None:
    judge = Judge(None, verdict(OTHER, "[smaller]"))
    message = UserMessage(
        content=[text("look"), PNG, text("paper")], timestamp=7, attachments=[Attachment(type="image")]
    )
    ready = await prepare_images(message, judge, True, Scope())
    assert ready == UserMessage(
        content=[text("look\n\n[smaller]"), OTHER, text("paper")], timestamp=7, attachments=message.attachments
    )
    assert message.content == [text("look"), PNG, text("paper")]


async def test_what_is_no_image_is_left_out_or_kept_as_the_host_expects() -> None:
    judge = Judge(verdict(None, "[no image]", readable=False))
    message = user_message(text("look"), PNG)
    assert await prepare_images(message, judge, True, None) is message
    left_out = await prepare_images(message, judge, False, None)
    assert left_out.content == [text("look\n\n[no image]")]


async def test_what_is_an_image_and_cannot_be_sent_is_never_kept() -> None:
    ready = await prepare_images(user_message(text(""), PNG), Judge(None, verdict(None, "[too large]")), True, None)
    assert ready.content == [text("[too large]")]


async def test_notes_have_a_place_where_there_is_no_text() -> None:
    message = CustomMessage(custom_type="x", content=[PNG, PNG], display=True, timestamp=1)
    ready = await prepare_images(message, Judge(verdict(OTHER, "[a]")), True, None)
    assert ready.content == [text("[a]\n[a]"), OTHER, OTHER]


@pytest.mark.parametrize("early", [True, False])
async def test_who_stops_does_not_wait_for_an_image(early: bool) -> None:
    judge, scope = Judge(None, verdict(OTHER)), Scope()
    judge.goes_on.clear()
    if early:
        scope.cancel()
    else:
        asyncio.get_running_loop().call_soon(scope.cancel)
    ready = await prepare_images(user_message(text("look"), PNG), judge, True, scope)
    assert ready.content == [text(f"look\n\n{STOPPED}")]
