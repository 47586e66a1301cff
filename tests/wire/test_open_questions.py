"""Where a client begins that wants to see what is open, when the first of it is a question."""

from __future__ import annotations

from pigeon.wire.open_work import read_open_work

QUESTION = b'{"method":"confirm","type":"extension_ui_request","id":"q","title":"Go?","message":"?","seq":4}'
START = b'{"type":"message_start","message":{"role":"assistant"},"seq":9}'
END = b'{"method":"cancel","type":"extension_ui_request","id":"c","targetId":"q","seq":11}'


def test_a_client_begins_at_a_question_that_is_older_than_the_message() -> None:
    assert read_open_work([(4, QUESTION)]).first_open_number == 4
    assert read_open_work([(4, QUESTION), (9, START)]).first_open_number == 4
    assert read_open_work([(4, QUESTION), (9, START), (11, END)]).first_open_number == 9
    assert read_open_work([(4, QUESTION), (11, END)]).first_open_number is None
