"""The log: JSON lines, without what libraries were given, and never in the way."""

from __future__ import annotations

import json
import logging
import os

from pigeon.frontends.serve.service_log import MOST_WAITING, ServiceLog


def lines_of(descriptor: int) -> list[dict[str, object]]:
    with open(descriptor, "rb") as file:
        return [json.loads(line) for line in file]


def test_lines_have_a_level_and_leave_out_what_is_less_grave() -> None:
    reading, writing = os.pipe()
    log = ServiceLog(writing, "warning")
    log.debug("a")
    log.info("b")
    log.warning("c", why="line\nand \x1b[31m")
    log.error("d", number=1)
    log.close()
    os.close(writing)
    lines = lines_of(reading)
    assert [(line["level"], line["event"]) for line in lines] == [("warning", "c"), ("error", "d")]
    assert "\x1b" not in str(lines[0]["why"])


def test_a_reader_that_does_not_read_holds_nothing_up_and_what_was_left_out_is_counted() -> None:
    reading, writing = os.pipe()
    log = ServiceLog(writing)
    for number in range(2 * MOST_WAITING):
        log.info("event", number=number, text="x" * 300)
    log.close(0.01)
    log.warning("lost too")
    os.set_blocking(reading, False)
    assert os.read(reading, 1 << 16).startswith(b'{"time":')
    os.close(reading)
    os.close(writing)


def test_what_a_library_says_comes_without_its_arguments() -> None:
    reading, writing = os.pipe()
    log = ServiceLog(writing)
    root = logging.getLogger()
    before = list(root.handlers)
    log.capture_logging()
    try:
        logging.getLogger("uvicorn.error").error("%s asked for %s\nmore", "peer", "/?token=secret")
    finally:
        for handler in [handler for handler in root.handlers if handler not in before]:
            root.removeHandler(handler)
    log.close()
    os.close(writing)
    (line,) = lines_of(reading)
    assert (line["source"], line["message"]) == ("uvicorn.error", "… asked for …")
