from __future__ import annotations

from pigeon.session.host.reports import MOST_HELD, Reports
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.events import ExtensionError, Outbound


def texts(records: list[Outbound]) -> list[str]:
    return [record.message for record in records if isinstance(record, NotifyRequest)]


def test_a_problem_of_the_start_is_listed_once_and_not_sent() -> None:
    reports, sent = Reports(), list[Outbound]()
    for text in ("one", "two", "one"):
        reports.add_startup_problem(text)
    reports.start_posting(sent.append)
    assert (reports.startup, sent) == (["one", "two"], [])


def test_records_wait_for_the_host_in_their_order() -> None:
    reports, sent = Reports(), list[Outbound]()
    reports.show_warning("before")
    reports.report_skill_failure("/skill", "gone")
    reports.start_posting(sent.append)
    reports.show_warning("after")
    assert texts(sent) == ["before", "after"]
    assert sent[1] == ExtensionError(extension_path="/skill", event="skill_expansion", error="gone")
    assert {record.notify_type for record in sent if isinstance(record, NotifyRequest)} == {"warning"}
    assert len({record.id for record in sent if isinstance(record, NotifyRequest)}) == 2


def test_of_a_flood_only_the_first_are_kept() -> None:
    reports, sent = Reports(), list[Outbound]()
    for number in range(MOST_HELD + 5):
        reports.show_warning(str(number))
    reports.start_posting(sent.append)
    assert texts(sent) == [str(number) for number in range(MOST_HELD)]
