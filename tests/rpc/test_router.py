from __future__ import annotations

from typing import Any

import pytest

from pigeon.rpc.handlers import all as every_handler
from pigeon.rpc.router import handler_for, handles
from pigeon.wire.commands import ALL, Abort


def test_every_command_has_a_handler() -> None:
    assert every_handler.__all__
    assert all(callable(handler_for(kind)) for kind in ALL)


def test_a_second_handler_is_refused_and_the_first_stays() -> None:
    first = handler_for(Abort)

    def second(command: Any, subject: Any) -> None:
        raise AssertionError("never called")

    with pytest.raises(RuntimeError, match="two handlers for abort"):
        handles(Abort)(second)
    assert handler_for(Abort) is first
