from __future__ import annotations

from typing import Any

import pytest

from pigeon.rpc.handlers.all import HANDLERS
from pigeon.rpc.router import handles
from pigeon.wire.commands import ALL, Abort


def test_every_command_has_a_handler() -> None:
    assert set(HANDLERS) == set(ALL)


def test_a_second_handler_is_refused_and_the_first_stays() -> None:
    first = HANDLERS[Abort]

    def second(command: Any, subject: Any) -> None:
        raise AssertionError("never called")

    with pytest.raises(RuntimeError, match="two handlers for abort"):
        handles(Abort)(second)
    assert HANDLERS[Abort] is first
