"""Keys while the page asks something: what can be part of a sentence answers nothing, wherever the focus is."""

from __future__ import annotations

import random
import string

import pytest

from fakes.model_server import Call, Gate, ModelServer
from support.browser import EDIT, LATER, NEEDS_BROWSER, PARSER, Browser, ServedPigeon, Tab

pytestmark = NEEDS_BROWSER
BOX = "document.getElementById('message')"
OPEN = "document.querySelector('.question:not(.fresh)')"
# What a person may press; a slash begins a command.
PRINTABLE = string.printable[:95].replace("/", "")
# Where the focus can be while a question is open.
PLACES = {
    "the message box": f"{BOX}.focus()",
    "nothing": "document.activeElement.blur()",
    "an answer": "document.querySelector('.question button').focus()",
}
KINDS = {
    "select": 'await ctx.ui.select("Which?", ["yes", "no", "a", "1"])',
    "confirm": 'await ctx.ui.confirm("Really?", "It is cold.")',
    "input": 'await ctx.ui.input("Name?")',
    "editor": 'await ctx.ui.editor("Lines?", "")',
}
EXTENSION = """
from pigeon.extensions import Extension

ext = Extension("asks")
"""
COMMAND = """

@ext.command("ask-{kind}")
async def ask_{kind}(args, ctx):
    answer = {question}
    ctx.ui.notify(f"answered {{answer!r}}")
"""


def sentences(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(PRINTABLE, k=chance.randint(1, 12))).strip() + "." for _ in range(count)]


@pytest.mark.parametrize("place", PLACES)
def test_no_printable_key_answers_a_question_about_permission(
    tab: Tab, models: ModelServer, served: ServedPigeon, place: str
) -> None:
    models.answers(EDIT)
    models.answers("Over.")
    tab.send_message("sort")
    tab.until(OPEN)
    tab.ask(LATER)
    for key in PRINTABLE:
        tab.ask(PLACES[place])
        tab.press(key)
    tab.type(PRINTABLE)
    assert tab.ask(f"{OPEN} !== null"), "the question is open"
    typed = PRINTABLE if place != "nothing" else PRINTABLE.replace(" ", "")
    assert tab.ask(f"{BOX}.value") == typed + PRINTABLE
    assert (served.folders.work / "parser.py").read_text() == PARSER
    tab.press("Enter")
    tab.wait_until_settled()
    tab.lacks(".question")
    assert (served.folders.work / "parser.py").read_text() == PARSER
    assert PRINTABLE[:20] in str(models.requests[-1])


@pytest.mark.parametrize("seed", range(3))
def test_a_message_that_was_begun_before_the_question_is_sent_and_answers_nothing(
    tab: Tab, models: ModelServer, served: ServedPigeon, seed: int
) -> None:
    begun, second, after = sentences(seed, 3)
    gate = Gate()
    models.answers(gate, EDIT)
    models.answers("Over.")
    tab.send_message("sort")
    gate.wait_reached()
    for key in begun:
        tab.press(key)
    gate.open()
    tab.until(OPEN)
    # Enter is struck twice, and more is written without looking up.
    for key in ("!", "Enter", "Enter", *second, "Enter"):
        tab.press(key)
    tab.until("document.querySelectorAll('#queue li').length === 2")
    assert tab.ask(f"{OPEN} !== null"), "the question is open"
    assert (served.folders.work / "parser.py").read_text() == PARSER
    tab.ask(LATER)
    for key in (*after, "Enter"):
        tab.press(key)
    tab.wait_until_settled()
    tab.lacks(".question")
    assert (served.folders.work / "parser.py").read_text() == PARSER


def test_no_printable_key_answers_a_dialog_of_an_extension(
    browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    models.forget()
    folder = served.folders.agent / "extensions"
    folder.mkdir(exist_ok=True)
    file = folder / "asks.py"
    file.write_text(EXTENSION + "".join(COMMAND.format(kind=kind, question=text) for kind, text in KINDS.items()))
    tab = Tab(browser, served, served.new_session())
    tab.wait_until_settled()
    file.unlink()
    for kind in KINDS:
        tab.send_message(f"/ask-{kind} now")
        tab.until(OPEN)
        tab.ask(LATER)
        tab.ask(PLACES["the message box"])
        for key in PRINTABLE:
            tab.press(key)
        tab.ask(PLACES["an answer"])
        tab.press(" ")
        assert tab.ask(f"{OPEN} !== null"), kind
        assert tab.ask(f"{BOX}.value") == f"{PRINTABLE} "
        # A message leaves a dialog alone that asks for a text, and declines any other.
        models.answers(f"Heard about {kind}.")
        tab.press("Enter")
        tab.shows(f"Heard about {kind}.", "#entries")
        if kind in ("input", "editor"):
            assert tab.ask(f"{OPEN} !== null"), kind
            tab.press("Escape")
        tab.lacks(".question")
        tab.shows("answered False" if kind == "confirm" else "answered None", "#notices")
        tab.ask("document.getElementById('notices').replaceChildren()")
    tab.close()


def test_the_arrow_keys_select_and_enter_takes_what_is_selected(
    tab: Tab, models: ModelServer, served: ServedPigeon
) -> None:
    models.answers(EDIT, Call("write", {"path": "kept.txt", "content": "x"}, id="kept"))
    models.answers("Over.")
    tab.send_message("sort")
    tab.until(OPEN)
    tab.ask(LATER)
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        tab.press(key)
    assert tab.ask("document.querySelector('.question .chosen').textContent") == "Deny"
    tab.press("Enter")
    tab.shows("kept.txt", ".question:not(.fresh) h2")
    tab.press("Escape")
    tab.wait_until_settled()
    assert (served.folders.work / "parser.py").read_text() == PARSER
    assert not (served.folders.work / "kept.txt").exists()
