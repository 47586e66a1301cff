"""What models, tools, files and other browsers could do to a reader of the page, in a real browser."""

from __future__ import annotations

from fakes.model_server import Call, ModelServer
from support.browser import EDIT, NEEDS_BROWSER, Browser, ServedPigeon, Tab

pytestmark = NEEDS_BROWSER
# Shown as "notes-exe.txt" by what obeys it, and as "abc" with something in it that is not seen.
TURNED, UNSEEN = "notes-\u202etxt.exe", "a\u200bb\u2060c"
CONTROLS = r"/[\u202a-\u202e\u2066-\u2069]/.test"


def session_of(tab: Tab) -> str:
    return str(tab.ask("new URLSearchParams(location.search).get('session')"))


def test_no_name_passes_for_another(tab: Tab, served: ServedPigeon, models: ModelServer) -> None:
    write = Call("write", {"path": f"{TURNED}{UNSEEN}", "content": "if admin\u202e { }\n"})
    models.answers(write, Call(f"ls{UNSEEN}", {"path": "."}, id="other"))
    models.answers("Done.")
    (served.folders.work / f"{TURNED}-found").write_text("")
    tab.send_message(f"{TURNED} \u2066title")
    tab.shows("notes-\ufffdtxt.exea\ufffdb\ufffdc", ".permission h2")
    tab.answer(1)
    tab.wait_until_settled()
    tab.shows("notes-[U+202E]txt.exea[U+200B]b[U+2060]c", "#entries")
    tab.shows("lsa[U+200B]b[U+2060]c", "#entries")
    tab.until(
        "document.title.includes('[U+202E]') && document.querySelector('#sessions').innerText.includes('[U+2066]')"
    )
    assert tab.ask(f"{CONTROLS}(document.title + document.body.innerText)") is False
    assert tab.ask(f"[...document.querySelectorAll('[title]')].some(one => {CONTROLS}(one.title))") is False
    assert tab.ask("document.querySelector('#entries [data-call]').textContent.includes('admin[U+202E]')") is True
    tab.type("@found")
    tab.shows("notes-[U+202E]txt.exe-found", "#completions")
    tab.press("Tab")
    # What is sent is the name as it is.
    assert TURNED in tab.ask("document.getElementById('message').value")
    tab.ask("document.getElementById('message').value = ''")


def test_letters_that_need_what_is_not_seen_keep_it(tab: Tab, models: ModelServer) -> None:
    models.answers("👨\u200d👩\u200d👧 \u0645\u06cc\u200c\u062e")
    tab.send_message("\u0645\u06cc\u200c\u062e 👨\u200d👩\u200d👧")
    tab.wait_until_settled()
    tab.until("document.title.includes('👨\\u200d👩\\u200d👧')")
    assert tab.ask("document.querySelector('#entries').innerText.includes('[U+')") is False


def test_links_and_pictures_of_a_model_lead_nowhere_harmful(tab: Tab, models: ModelServer) -> None:
    svg = "data:image/svg+xml,<svg onload=alert(1)>"
    models.answers(
        "[one](javascript:alert(1)) [two](data:text/html,<script>alert(1)</script>) "
        f"![three](<{svg}>) ![four](https://example.invalid/pixel.png) <img src=x onerror=alert(1)> "
        "[five](JaVaScRiPt&colon;alert(1)) [six](vbscript:x) [seven](file:///etc/passwd) [eight](https://example.invalid)"
    )
    tab.send_message("go")
    tab.shows("eight", "#entries")
    tab.wait_until_settled()
    assert tab.ask("document.querySelectorAll('#entries :is(img, svg, iframe, object, embed, script)').length") == 0
    links = tab.ask("[...document.querySelectorAll('#entries .body a[href]')].map(one => one.getAttribute('href'))")
    assert links == ["https://example.invalid/pixel.png", "https://example.invalid"]
    rel = tab.ask("document.querySelector('#entries .body a[href]').rel")
    assert {"noopener", "noreferrer"} <= set(rel.split())


def test_of_two_answers_in_the_same_moment_one_counts_and_the_other_browser_is_told(
    tab: Tab, browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    models.answers(EDIT)
    models.answers("One of you was first.")
    tab.send_message("sort")
    tab.shows("Allow once", ".permission")
    other = Tab(browser, served, session_of(tab))
    ready = "document.querySelector('.permission:not(.fresh) [data-choice]')"
    for one in (tab, other):
        one.until(ready)
    # Neither hears of the other's answer before its own is on the way.
    tab.ask("document.querySelector('.permission [data-choice=\"1\"]').click()")
    other.ask("document.querySelector('.permission [data-choice=\"3\"]')?.click()")
    for one in (tab, other):
        one.lacks(".permission")
        one.wait_until_settled()
        one.shows("One of you was first.", "#entries")
    other.shows("allowed once in another browser", "#notices")
    assert "another browser" not in tab.ask("document.getElementById('notices').innerText")
    assert other.complaints() == []
    other.close()


def test_a_question_that_moves_to_the_place_of_another_takes_no_click_at_once(tab: Tab, models: ModelServer) -> None:
    models.answers(EDIT, Call("write", {"path": "second.txt", "content": "x"}, id="second"))
    models.answers("Over.")
    tab.send_message("both")
    tab.until("document.querySelector('.permission:not(.fresh)')")
    if tab.ask("document.querySelectorAll('.permission').length") == 1:
        tab.answer(3)
    else:
        tab.until("document.querySelectorAll('.permission:not(.fresh)').length === 2")
        tab.ask("document.querySelector('.permission [data-choice=\"3\"]').click()")
    tab.until("document.querySelectorAll('.permission').length === 1")
    tab.shows("second.txt", ".permission h2")
    tab.ask("document.querySelector('.permission.fresh [data-choice=\"1\"]')?.click()")
    tab.shows("Allow once", ".permission:not(.fresh)")
    tab.answer(3)
    tab.wait_until_settled()
    tab.shows("Over.", "#entries")
