"""Agents, what runs in the background, and plans on the page, in a real browser."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import ALT, DESK, LATER, NEEDS_BROWSER, PHONE, Browser, ServedPigeon, Tab, found_by_axe
from support.installed_programs import npm_source

pytestmark = NEEDS_BROWSER
AXE = "4.14.0"
PLAN = "# The plan\n\n" + "\n".join(f"{number}. Step number {number}" for number in range(1, 41))
Open = Callable[..., Tab]


def calls(*given: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"toolCalls": [{"name": name, "arguments": arguments} for name, arguments in given]}


def wait_for(pipe: Path) -> str:
    """A command that goes on until something is written into a pipe."""
    if not pipe.exists():
        os.mkfifo(pipe)
    return f"echo begun-{pipe.name}; read line < {pipe}; echo ended-{pipe.name}"


@pytest.fixture
def open_session(browser: Browser, served: ServedPigeon, tmp_path: Path) -> Iterator[Open]:
    """Opens sessions as the page creates them, whose model gives these replies, in turn, to a prompt with a word."""
    tabs: list[Tab] = []

    def open_tab(size: tuple[int, int] = DESK, session: str | None = None, **replies: list[Any]) -> Tab:
        rules: list[dict[str, Any]] = []
        for word, listed in replies.items():
            rules += [{"when": {"user": word}, "reply": reply, "times": 1} for reply in listed[:-1]]
            rules.append({"when": {"user": word}, "reply": listed[-1]})
        script = tmp_path / "script.json"
        if rules:
            script.write_text(json.dumps({"rules": rules, "cost": {"input": 1000, "output": 1000}}))
        id = session or served.new_session(model=f"scripted/{script}", plans=True, agents=True)
        tabs.append(Tab(browser, served, id, size))
        if session is None:
            tabs[-1].wait_until_settled()
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        assert tab.complaints() == []
        tab.close()


def test_agents_are_seen_at_work_looked_at_told_something_and_asked_for(open_session: Open, tmp_path: Path) -> None:
    both = calls(
        ("task", {"prompt": "CHILD", "title": "Look around", "agent": "explore"}),
        ("task", {"prompt": "OTHER", "title": "Build it"}),
    )
    builds = calls(("bash", {"command": wait_for(tmp_path / "built")}), ("write", {"path": "x.txt", "content": "x"}))
    tab = open_session(
        ROOT=[both, "Both have ended."],
        CHILD=["Nothing **special**."],
        OTHER=[{"text": "I build.", **builds}, "Built."],
        hurry=["Built in a hurry."],
    )
    tab.send_message("ROOT")
    tab.shows("1 agent at work", "#work")
    tab.until("/general Build it .*\\$/s.test(document.getElementById('work').innerText)")
    tab.until("document.getElementById('spent').textContent.includes('$') && !/\\$0 /.test(spent.textContent)")
    late = open_session(PHONE, tab.ask("new URLSearchParams(location.search).get('session')"))
    late.shows("general Build it", "#work")
    late.shows("1 agent at work", "#work")
    assert "I build." not in tab.ask("document.getElementById('scroll').innerText"), "it is no part of the conversation"
    tab.click("#work li button")
    tab.shows("I build.", "dialog[open] .transcript")
    tab.ask("document.querySelector('dialog[open] input').focus()")
    tab.type("hurry up")
    tab.press("Enter")
    tab.shows("It gets the message at its next break", "dialog[open]")
    (tmp_path / "built").write_text("go\n")
    tab.shows("ended-built", "dialog[open] .transcript")
    tab.press("Escape")
    tab.shows("Allow write (general): x.txt", ".permission h2")
    tab.shows("For the agent general: Build it", ".permission")
    tab.ask(LATER)
    tab.answer(1)
    tab.shows("Both have ended.", "#entries")
    tab.lacks("#work")
    tab.wait_until_settled()
    tab.press("a", ALT)
    tab.shows("explore: Look around", "dialog[open]")
    tab.press("Enter")
    tab.until("document.querySelector('dialog[open] .transcript .assistant')")
    tab.press("Escape")
    tab.ask("for (const card of document.querySelectorAll('#entries [data-call]')) card.open = true")
    tab.click("#entries .to-agent")
    tab.until("document.querySelector('dialog[open] .transcript strong')?.textContent === 'special'")


def test_a_command_that_takes_long_goes_on_in_the_background_and_is_stopped(open_session: Open) -> None:
    tab = open_session(ROOT=[calls(("bash", {"command": "echo begun; sleep 600"})), "It goes on."])
    tab.send_message("ROOT")
    tab.shows("begun", "#scroll .output")
    tab.ask(LATER)
    tab.until("document.getElementById('background').checkVisibility()")
    tab.press("g", ALT)
    tab.shows("It goes on.", "#entries")
    tab.shows("1 in the background", "#work")
    tab.wait_until_settled()
    tab.lacks("#background")
    tab.click("#work li button")
    tab.shows("begun", "dialog[open] pre")
    tab.click("dialog[open] .deny")
    tab.shows("stopped", "dialog[open] .note")
    tab.press("Escape")
    tab.lacks("#work")
    tab.shows("was stopped", "#notices")


def test_a_plan_is_read_changed_and_accepted(open_session: Open) -> None:
    plan, shorter = (calls(("submit_plan", {"plan": text})) for text in (PLAN, "Only **read**."))
    tab = open_session(ROOT=[plan], fewer=[shorter, "Carried out."])
    tab.until("document.activeElement === document.getElementById('message')")
    tab.type("/plan ")
    tab.press("Enter")
    tab.until("document.getElementById('approval').value === 'plan'")
    tab.send_message("ROOT")
    tab.until("document.querySelectorAll('.plan li').length === 40")
    tab.until("document.querySelector('.plan').scrollHeight > document.querySelector('.plan').clientHeight")
    assert tab.ask("document.querySelector('.question h2').textContent") == "Accept this plan?"
    tab.ask(LATER)
    tab.answer(2)
    tab.until("document.activeElement?.getAttribute('aria-label') === 'What should change?'")
    tab.type("fewer steps")
    tab.click(".question [type=submit]")
    tab.until("document.querySelector('.plan strong')?.textContent === 'read'")
    tab.shows("fewer steps", "#scroll")
    tab.ask(LATER)
    tab.answer(1)
    tab.shows("Carried out.", "#entries")
    tab.wait_until_settled()
    tab.until("document.getElementById('approval').value === 'yolo'")


@pytest.mark.interop
def test_nothing_serious_is_found_by_axe_about_agents(open_session: Open, tmp_path: Path) -> None:
    source = (npm_source("axe-core", AXE) / "axe.min.js").read_text()
    waits = {"text": "I **wait**.", **calls(("bash", {"command": wait_for(tmp_path / "over")}))}
    background = ("bash", {"command": "echo begun; sleep 600", "background": True})
    both = calls(background, ("task", {"prompt": "CHILD", "title": "Wait"}))
    tab = open_session(ROOT=[both, calls(("submit_plan", {"plan": PLAN})), "Over."], CHILD=[waits, "Done."])
    tab.send_message("ROOT")
    tab.shows("1 agent at work · 1 in the background", "#work")
    assert found_by_axe(tab, source) == []
    tab.click("#work li button")
    tab.shows("I wait.", "dialog[open] .transcript")
    assert found_by_axe(tab, source) == []
    tab.press("Escape")
    tab.press("a", ALT)
    tab.shows("general: Wait", "dialog[open]")
    assert found_by_axe(tab, source) == []
    tab.press("Escape")
    (tmp_path / "over").write_text("go\n")
    tab.shows("Over.", "#entries")
