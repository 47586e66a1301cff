"""What makes the page of `pigeon serve` pleasant and safe to use, in a real browser."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

from fakes.model_server import Call, Gate, ModelServer, Text
from support.browser import ALT, ASKING, DESK, EDIT, LATER, NEEDS_BROWSER, Browser, BrowserPage, ServedPigeon, Tab

pytestmark = NEEDS_BROWSER
BOX = "document.getElementById('message')"


def session_of(tab: Tab) -> str:
    return str(tab.ask("new URLSearchParams(location.search).get('session')"))


def test_a_file_is_completed_behind_an_at_sign(tab: Tab, served: ServedPigeon) -> None:
    (served.folders.work / "deep").mkdir(exist_ok=True)
    (served.folders.work / "deep" / "a plan.md").write_text("")
    tab.until(f"document.activeElement === {BOX}")
    tab.type("look at @apla")
    tab.shows("deep/a plan.md", "#completions")
    tab.press("Tab")
    assert tab.ask(f"{BOX}.value") == 'look at @"deep/a plan.md" '
    tab.lacks("#completions")
    tab.ask(f"{BOX}.value = ''")


def test_what_was_typed_outlives_a_reload_and_what_was_said_comes_back_by_arrow_up(
    tab: Tab, models: ModelServer
) -> None:
    models.answers("One.")
    tab.send_message("the first thing")
    tab.shows("One.", "#entries")
    tab.wait_until_settled()
    tab.press("ArrowUp")
    tab.until(f"{BOX}.value === 'the first thing'")
    tab.press("ArrowDown")
    tab.until(f"{BOX}.value === ''")
    tab.type("half a thought")
    tab.call("Page.reload")
    tab.until(f"{BOX}?.value === 'half a thought'")
    tab.wait_until_settled()
    models.answers("Two.")
    tab.send_message(", finished")
    tab.shows("half a thought, finished", "#entries")
    tab.call("Page.reload")
    tab.wait_until_settled()
    assert tab.ask(f"{BOX}.value") == ""


def test_a_model_is_found_by_its_name_and_taken_by_the_keyboard(tab: Tab) -> None:
    tab.press("m", ALT)
    tab.until("document.activeElement?.getAttribute('role') === 'combobox'")
    before = tab.ask("document.querySelectorAll('.picker [role=option]').length")
    tab.type("fake-2")
    tab.until("document.querySelectorAll('.picker [role=option]').length === 1")
    assert before > 1
    tab.press("Enter")
    tab.lacks("dialog")
    tab.until("document.getElementById('model').textContent.includes('2')")


def test_code_is_copied_as_it_is_and_an_answer_as_markdown(tab: Tab, models: ModelServer) -> None:
    tab.ask("void (navigator.clipboard.writeText = async (text) => { window.copied = text; })")
    models.answers("Do *this*:\n\n```python\nx = 1\n\ny = 2\n```\n\nand wait.")
    tab.send_message("how?")
    tab.shows("and wait.", "#entries")
    tab.wait_until_settled()
    tab.ask("document.querySelector('#entries .copyable .copy').click()")
    tab.until("window.copied === 'x = 1\\n\\ny = 2'")
    tab.ask("document.querySelector('#entries article.assistant > header .copy').click()")
    tab.until("window.copied === 'Do *this*:\\n\\n```python\\nx = 1\\n\\ny = 2\\n```\\n\\nand wait.'")


def test_colours_are_chosen_and_kept(tab: Tab) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = tab.ask(colour)
    choose = "const t = document.getElementById('theme'); t.value = '%s'; t.dispatchEvent(new Event('change'));"
    tab.ask(choose % "dark")
    dark = tab.ask(colour)
    assert dark != light
    tab.call("Page.reload")
    tab.wait_until_settled()
    assert tab.ask(colour) == dark
    tab.ask("{ " + choose % "" + " }")
    assert tab.ask(colour) == light


def test_a_tab_that_comes_later_sees_the_messages_that_wait(
    tab: Tab, browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    gate = Gate()
    models.answers(Text("Reading."), gate, Call("bash", {"command": "true"}))
    models.answers(EDIT)
    tab.send_message("begin")
    gate.wait_reached()
    tab.type("when you are done")
    tab.press("Enter", ALT)
    tab.shows("when you are done", "#queue")
    gate.open()
    tab.shows("Allow once", ".permission")
    later = Tab(browser, served, session_of(tab))
    later.shows("when you are done", "#queue")
    models.answers("Left.")
    later.click("#queue button[aria-label='Remove this message']")
    tab.lacks("#queue")
    later.answer(3)
    tab.wait_until_settled()
    later.close()


def test_a_model_chosen_in_another_browser_is_shown_here(tab: Tab, served: ServedPigeon, browser: Browser) -> None:
    session = session_of(tab)
    other = StrangersTab(browser, served, session)
    other.until("document.getElementById('model').textContent.includes('1')")
    other.press("m", ALT)
    other.type("fake-2")
    other.until("document.querySelectorAll('.picker [role=option]').length === 1")
    other.press("Enter")
    tab.until("document.getElementById('model').textContent.includes('2')")
    tab.ask("document.getElementById('rename').click()")
    tab.until("document.querySelector('dialog input')")
    tab.type("A common name")
    tab.press("Enter")
    other.shows("A common name", "#title")
    other.close()


class StrangersTab(Tab):
    """A tab of a browser with cookies of its own, let in by a link of its own."""

    def __init__(self, browser: Browser, served: ServedPigeon, session: str, scope: str = "admin") -> None:
        context = browser.call("Target.createBrowserContext")["browserContextId"]
        path = served.call("POST", "/api/links", {"scope": scope})["path"]
        BrowserPage.__init__(self, browser, served.url + path, *DESK, context=context)
        self.call("Page.navigate", url=f"{served.url}/?session={session}")
        self.until("document.querySelector('#entries')")


def test_who_only_reads_is_shown_nothing_that_would_be_refused(
    tab: Tab, browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    models.answers(EDIT)
    tab.send_message("sort")
    tab.shows("Allow once", ".permission")
    with (served.folders.agent / "serve.token").open("a") as tokens:
        tokens.write("read a-token-for-those-who-only-read watchers\n")
    reader = StrangersTab(browser, served, session_of(tab), "read")
    reader.shows("You are watching")
    reader.shows("Allow edit", ".permission")
    reader.lacks("#composer, #new-session, .answers, .back, #rename, #delete")
    assert [one for one in reader.complaints() if "403" in one] == []
    reader.close()
    models.answers("Not done.")
    tab.answer(3)
    tab.wait_until_settled()


def test_a_question_takes_no_click_before_it_could_be_read(tab: Tab, models: ModelServer) -> None:
    models.answers(EDIT)
    models.answers("Not done.")
    tab.ask("""void (window.early = new Promise((done) => new MutationObserver((_, watching) => {
      const button = document.querySelector('.question.fresh [data-choice="1"]');
      if (!button) return;
      watching.disconnect();
      button.click();
      done(button.disabled);
    }).observe(document.getElementById('questions'), { childList: true })))""")
    tab.send_message("sort them")
    assert tab.ask("window.early") is False
    tab.shows("return sorted(parts)", ".permission ins")
    assert tab.ask("document.querySelector('#entries [data-call], #live [data-call]').open") is False
    tab.shows("asks you", "#scroll")
    tab.answer(3)
    tab.wait_until_settled()
    tab.shows("Not done.", "#entries")


def test_words_that_objects_know_are_ordinary_messages(tab: Tab, models: ModelServer) -> None:
    for word in ("/constructor", "/toString"):
        models.answers(f"Answered {word}.")
        tab.send_message(word)
        tab.shows(f"Answered {word}.", "#entries")
        tab.wait_until_settled()


def test_keys_of_a_composition_neither_send_nor_stop(tab: Tab, models: ModelServer) -> None:
    gate = Gate()
    models.answers(Text("Still ", closes=False), gate)
    tab.send_message("go")
    gate.wait_reached()
    tab.until("!document.getElementById('stop').hidden")
    tab.type("ni hao")
    pressed = "new KeyboardEvent('keydown', {{ key: '{}', isComposing: true, bubbles: true, cancelable: true }})"
    for key in ("Enter", "Escape"):
        tab.ask(f"{BOX}.dispatchEvent({pressed.format(key)})")
    assert tab.ask(f"{BOX}.value") == "ni hao"
    assert tab.ask("document.getElementById('stop').hidden") is False
    gate.open()
    tab.wait_until_settled()
    tab.ask(f"{BOX}.value = ''")


def test_a_dropped_file_that_is_no_image_is_refused_in_words(tab: Tab) -> None:
    dropped = tab.ask("""(() => { const data = new DataTransfer();
      data.items.add(new File(['x'], 'x.svg', { type: 'image/svg+xml' }));
      const drop = new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true });
      return [document.body.dispatchEvent(drop), document.querySelectorAll('#pictures img').length]; })()""")
    assert dropped == [False, 0], "the browser would have left the page"
    tab.shows("Only images", "#notices")


def test_a_session_is_deleted_after_a_question(browser: Browser, served: ServedPigeon, models: ModelServer) -> None:
    session = served.new_session()
    tab, other = Tab(browser, served, session), Tab(browser, served, session)
    tab.wait_until_settled()
    models.answers("Gone soon.")
    tab.send_message("say it")
    tab.shows("Gone soon.", "#entries")
    tab.wait_until_settled()
    tab.ask("document.getElementById('delete').click()")
    tab.shows("Delete this session?", "dialog")
    tab.click("dialog .deny")
    tab.shows("What shall we work on?")
    tab.shows("pigeon sessions undelete", "#notices")
    other.shows("What shall we work on?")
    assert _status(served, f"/api/sessions/{session}") == 404
    tab.close()
    other.close()


def _status(served: ServedPigeon, path: str) -> Any:
    try:
        served.call("GET", path)
    except urllib.request.HTTPError as error:
        error.close()
        return error.code
    return 200


def test_the_sentence_of_a_server_that_refuses_is_shown_and_what_it_sent_below_it(
    tab: Tab, models: ModelServer
) -> None:
    models.fails(400, "the <b>credit</b> is used up")
    tab.send_message("go")
    tab.shows("the <b>credit</b> is used up", "#entries .body > p.bad")
    assert tab.ask("document.querySelector('#entries details:has(pre) pre').textContent").startswith("400 {")
    tab.wait_until_settled()
    assert tab.ask("document.querySelectorAll('.notice').length") == 0


def test_the_files_that_a_run_has_changed_are_listed_and_lead_to_their_changes(tab: Tab, models: ModelServer) -> None:
    models.answers(EDIT, Call("write", {"path": "new.txt", "content": "x\n"}, id="made"))
    models.answers("Both are done.")
    tab.send_message("change them")
    for _ in range(2):
        tab.answer(1)
        tab.until("document.querySelector('.question.fresh') || !document.querySelector('.question')")
    tab.wait_until_settled()
    tab.shows("2 files changed", "#changes")
    tab.shows("parser.py +1 -1", "#changes")
    tab.shows("new.txt written", "#changes")
    tab.ask("document.querySelector('#entries [data-call]').open = false")
    tab.click("#changes li button")
    tab.until("document.querySelector('#entries [data-call]').open")
    models.answers("Nothing to change.")
    tab.send_message("and now?")
    tab.shows("Nothing to change.", "#entries")
    tab.lacks("#changes")


def test_all_changes_of_a_session_are_reviewed_file_by_file_with_the_keyboard(
    tab: Tab, served: ServedPigeon, models: ModelServer
) -> None:
    again = Call(
        "edit", {"path": "./parser.py", "edits": [{"oldText": "sorted(parts)", "newText": "sorted(set(parts))"}]}
    )
    for call, said in ((EDIT, "Sorted."), (again, "Now once each.")):
        models.answers(call)
        models.answers(said)
        tab.send_message("sort")
        tab.shows("Allow once", ".permission")
        tab.answer(1)
        tab.shows(said, "#entries")
        tab.wait_until_settled()
        tab.until("document.getElementById('review').textContent === 'Changes 1 file'")
    tab.press("c", ALT)
    tab.shows("return sorted(set(parts))", ".review ins")
    assert tab.ask("document.querySelectorAll('.review ins').length") == 1
    tab.shows("return parts", ".review del")
    tab.shows("+1 \u22121", ".review summary")
    tab.until("document.activeElement.matches('.review summary')")
    tab.press("Enter")
    tab.lacks(".review .diff")
    tab.press("Enter")
    tab.until("document.querySelector('.review .diff').checkVisibility()")
    tab.click(".review .below button")
    tab.lacks("dialog")
    tab.shows("sorted(set(parts))", ".found")


def test_sessions_stand_under_their_projects_and_are_searched_over_all(
    tab: Tab, browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    for folder in ("one/site", "two/site"):
        (served.folders.work / folder).mkdir(parents=True)
        session = served.call("POST", "/api/sessions", {"cwd": str(served.folders.work / folder)})["id"]
        other = Tab(browser, served, session)
        other.wait_until_settled()
        models.answers(f"Hello from {folder}.")
        other.send_message(f"a task of {folder}")
        other.shows(f"Hello from {folder}.", "#entries")
        other.wait_until_settled()
        other.close()
    tab.press("k", ALT)
    heads = "[...document.querySelectorAll('#sessions h2')].map(one => one.textContent)"
    tab.until(f"{heads}.indexOf('two/site') >= 0 && {heads}.indexOf('two/site') < {heads}.indexOf('one/site')")
    tab.type("a task of")
    tab.until("document.querySelectorAll('#sessions a').length === 2")
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    tab.until("document.activeElement.innerText.startsWith('a task of one/site')")
    tab.click("#sessions .project:nth-child(2) .group button")
    tab.shows("/one/site", "#folder")
    tab.shows("A new session", "#start")


def test_who_denies_may_say_why_and_the_model_reads_it_with_the_refusal(tab: Tab, models: ModelServer) -> None:
    before = len(models.requests)
    models.answers(EDIT)
    models.answers("Then by length.")
    tab.send_message("sort them")
    tab.shows("Enter to select, Esc to decline", ".permission")
    assert "say what to do instead" in tab.ask(f"{BOX}.placeholder")
    tab.until("document.querySelector('.question:not(.fresh)')")
    assert tab.ask("document.getElementById('send').textContent") == "Steer"
    # Words right after an Enter are no answer.
    tab.ask(LATER)
    tab.type("sort by length instead")
    tab.until("document.getElementById('send').textContent === 'Decline and send'")
    tab.press("Enter")
    tab.shows("Then by length.", "#entries")
    tab.wait_until_settled()
    tab.lacks(".question")
    tab.shows("sort by length instead", "#entries")
    assert len(models.requests) == before + 2
    last = str(models.requests[-1])
    assert 0 < last.index("denied") < last.index("sort by length instead")


def test_a_block_of_code_names_its_language_and_is_wrapped_or_not(tab: Tab, models: ModelServer) -> None:
    models.answers("```python title=x\nx = 1\n```\n\n```<b>\ny\n```")
    tab.send_message("code")
    tab.shows("x = 1", "#entries")
    tab.wait_until_settled()
    labels = "[...document.querySelectorAll('#entries .on-code .note')].map(one => one.textContent)"
    assert tab.ask(labels) == ["python", ""]
    spaces = "getComputedStyle(document.querySelector('#entries .copyable pre')).whiteSpace"
    assert tab.ask(spaces) == "pre-wrap"
    tab.ask("document.querySelector('#entries .wrap').click()")
    assert tab.ask(spaces) == "pre"
    assert tab.ask("document.querySelector('#entries .wrap').getAttribute('aria-pressed')") == "false"


def test_the_approval_mode_is_seen_and_changed_beside_the_message_box(tab: Tab, models: ModelServer) -> None:
    mode = "document.getElementById('approval')"
    tab.until(f"{mode}.checkVisibility() && {mode}.value === 'yolo'")
    tab.ask(f"void ({mode}.value = 'write', {mode}.dispatchEvent(new Event('change')))")
    models.answers(Call("bash", {"command": "echo asked"}))
    models.answers("Not run.")
    tab.until(f"!{mode}.disabled")
    tab.send_message("run it")
    tab.shows("Allow bash: echo asked", ".permission")
    tab.answer(3)
    tab.wait_until_settled()
    assert tab.ask(f"{mode}.value") == "write"


def test_a_clock_that_is_set_back_neither_freezes_nor_hurries_the_page(
    browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    settings = served.folders.agent / "settings.json"
    before = settings.read_text()
    settings.write_text(json.dumps({"permissions": {**ASKING["permissions"], "timeoutMs": 100_000}}))
    tab = Tab(browser, served, served.new_session())
    tab.wait_until_settled()
    settings.write_text(before)
    back = "(() => { const was = Date.now.bind(Date); Date.now = () => was() - 3600e3; })()"
    gate = Gate()
    models.answers("Begins", gate, " and ends.")
    tab.send_message("go")
    tab.shows("Begins", "#live")
    tab.ask(back)
    tab.until("/· \\d+ s/.test(document.getElementById('status').textContent)")
    gate.open()
    tab.wait_until_settled()
    models.answers(EDIT)
    models.answers("Denied.")
    tab.send_message("edit")
    tab.shows("Allow once", ".permission")
    tab.ask(back)
    # A question takes an answer in its time, and says how much of that is left.
    tab.until("/within [1-9]\\d* s/.test(document.querySelector('.permission > .note')?.textContent)")
    tab.answer(3)
    tab.wait_until_settled()
    tab.shows("Denied.", "#entries")
    tab.close()


def test_of_a_very_long_text_a_part_is_shown_that_says_so_and_all_of_it_is_copied(
    tab: Tab, models: ModelServer
) -> None:
    content = "w" * 210_000 + "\n" + "a line of a long file\n" * 6000
    models.answers(Call("write", {"path": "long.txt", "content": content}, id="long", piece=100_000))
    models.answers("word " * 6000 + "end")
    tab.send_message("write much")
    tab.answer(1)
    tab.wait_until_settled()
    tab.until("document.querySelector('#entries [data-call=long] .numbers')")
    first = "document.querySelector('#entries [data-call=long] .numbers')"
    numbers = f"{first}.textContent.split('\\n').length"
    code, more = f"{first}.nextElementSibling", "document.querySelector('#entries [data-call=long] .more-text')"
    shown = _not_hidden(tab, code)
    assert shown.startswith("w" * 5000 + "\na line")
    assert 90_000 < len(shown) <= 100_000
    assert tab.ask(numbers) == shown.count("\n") + 1
    assert tab.ask(f"{code}.textContent") == content.removesuffix("\n"), "this is what is copied"
    left = len(content) - 1 - len(shown)  # more than is shown at once
    assert tab.ask(f"{more}.textContent") == f"Show more ({left:,} characters are left out)"
    tab.ask(f"{first}.closest('details').open = true; {more}.click()")
    [rest] = re.findall(r"Show more \(([\d,]+) characters are left out\)", tab.ask(f"{more}.textContent"))
    # Browsers split a long text at places of their own, and a part is shown whole.
    assert 0 <= left - 200_000 - int(rest.replace(",", "")) < 65_536
    tab.ask(f"{more}.click()")
    assert _not_hidden(tab, code) == content.removesuffix("\n")
    assert tab.ask(f"[{more}, {numbers}]") == [None, 6001]
    assert tab.ask("document.activeElement.matches('.code')"), "the keyboard stays where it was"
    answer = "[...document.querySelectorAll('#entries article.assistant')].at(-1)"
    assert len(_not_hidden(tab, answer)) < 25_000
    assert tab.ask(f"{answer}.textContent.includes('word end')")


def _not_hidden(tab: Tab, found: str) -> str:
    copy = f"const copy = {found}.cloneNode(true)"
    return str(
        tab.ask(
            f"(() => {{ {copy}; copy.querySelectorAll('[hidden]').forEach(one => one.remove()); "
            "return copy.textContent; })()"
        )
    )
