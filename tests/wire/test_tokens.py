from __future__ import annotations

import pytest

from pigeon.wire.messages import (
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
)
from pigeon.wire.tokens import IMAGE_CHARACTERS, characters_of, estimated_tokens, message_tokens
from support.model_requests import (
    PNG,
    assistant_message,
    text_block,
    thinking_block,
    tool_call,
    tool_result,
    user_message,
)

BASH = BashExecutionMessage(command="ls", output="a\nb", exit_code=0, cancelled=False, truncated=False, timestamp=1)


@pytest.mark.parametrize(("characters", "up", "down"), [(0, 0, 0), (1, 1, 0), (4, 1, 1), (5, 2, 1)])
def test_a_token_is_four_characters(characters: int, up: int, down: int) -> None:
    assert (estimated_tokens(characters), estimated_tokens(characters, round_up=False)) == (up, down)


@pytest.mark.parametrize(
    ("message", "characters"),
    [
        (user_message("hello"), 5),
        (user_message([text_block("hello"), PNG, PNG]), 5 + 2 * IMAGE_CHARACTERS),
        (
            assistant_message(thinking_block("why"), text_block("because"), tool_call("id", command="ls")),
            3 + 7 + len('bash{"command":"ls"}'),
        ),
        (tool_result("id", "out", PNG), 3 + IMAGE_CHARACTERS),
        (CustomMessage(custom_type="note", content="hello", display=True, timestamp=1), 5),
        (CustomMessage(custom_type="note", content=[PNG], display=True, timestamp=1), IMAGE_CHARACTERS),
        (BranchSummaryMessage(summary="there", from_id="1", timestamp=1), 5),
        (CompactionSummaryMessage(summary="before", tokens_before=9, timestamp=1), 6),
        (
            BashExecutionMessage(
                command="ls", output="a\nb", exit_code=0, cancelled=False, truncated=False, timestamp=1
            ),
            5,
        ),
    ],
)
def test_all_that_a_model_sees_of_a_message_counts(message: Message, characters: int) -> None:
    assert characters_of(message) == characters
    assert message_tokens(message) == -(-characters // 4)
