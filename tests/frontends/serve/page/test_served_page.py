"""The page of `pigeon serve` in a real browser: a whole conversation, the way a person has it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from fakes.model_server import Call, Gate, ModelServer, Text, Thinking, said_in
from support.browser import ALT, EDIT, NEEDS_BROWSER, PARSER, PHONE, Browser, ServedPigeon, Tab, found_by_axe
from support.installed_programs import npm_source

pytestmark = NEEDS_BROWSER
AXE = "4.14.0"


def test_a_whole_conversation_with_thinking_tools_a_permission_and_its_diff(
    tab: Tab, models: ModelServer, served: ServedPigeon
) -> None:
    models.answers(Thinking("It is not sorted yet."), "Looking at *parser.py*.", Call("read", {"path": "parser.py"}))
    models.answers("Sorting.", EDIT)
    models.answers("Done: **sorted**.\n\n```python\nparse('b,a')\n```\n", usage={"input_tokens": 20_000})
    tab.send_message("sort the parts")
    tab.shows("return sorted(parts)", ".permission .diff ins")
    tab.shows("Allow once", ".permission")
    tab.until("document.querySelector('.permission:not(.fresh)')")
    assert tab.ask("document.activeElement.id") == "message"
    assert (served.folders.work / "parser.py").read_text() == PARSER
    # There is no limit of time where a person answers.
    assert tab.ask("document.querySelector('.permission > .note')") is None
    tab.press("ArrowDown")
    tab.press("ArrowUp")
    tab.press("Enter")
    tab.wait_until_settled()
    tab.lacks(".permission")
    assert "sorted(parts)" in (served.folders.work / "parser.py").read_text()
    assert tab.ask("document.getElementById('message').value") == "", "the key that answered was not typed"
    tab.shows("Done: sorted.", "#entries")
    assert tab.ask("document.querySelectorAll('#entries .thinking').length") == 1
    assert tab.ask("document.querySelector('#entries .thinking').open") is False
    assert tab.ask("document.querySelector('#entries code .s').textContent") == "'b,a'"
    tab.shows("10%", "#spent")
    tab.shows("$0.0", "#spent")
    tab.shows("sort the parts", "#sessions [aria-current]")


def test_a_question_does_not_take_the_keys_of_a_person_who_types(tab: Tab, models: ModelServer) -> None:
    gate = Gate()
    models.answers(gate, EDIT)
    models.answers("Not done.")
    tab.send_message("sort them")
    gate.wait_reached()
    tab.type("wait, I am typing 1")
    gate.open()
    tab.shows("Allow once", ".permission")
    assert tab.ask("document.activeElement.id") == "message"
    tab.until("document.querySelector('.question:not(.fresh)')")
    tab.press("Escape")
    tab.wait_until_settled()
    tab.shows("Not done.", "#entries")
    assert tab.ask("document.getElementById('message').value") == "wait, I am typing 1"


def test_an_enter_struck_too_early_or_twice_answers_nothing(
    tab: Tab, models: ModelServer, served: ServedPigeon
) -> None:
    models.answers(EDIT, Call("write", {"path": "second.txt", "content": "x"}, id="second"))
    models.answers("Not done.")
    # As soon as the question is there, before anybody can have read it.
    tab.ask("""void (window.early = new Promise((done) => new MutationObserver((_, watching) => {
      const button = document.querySelector('.question.fresh button');
      if (!button) return;
      watching.disconnect();
      document.getElementById('message').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
      done(button.disabled);
    }).observe(document.getElementById('questions'), { childList: true })))""")
    tab.send_message("sort them")
    assert tab.ask("window.early") is False
    tab.until("document.querySelector('.question:not(.fresh)')")
    # Later: struck twice and held down. The question after the first one stays open.
    tab.ask("{ const was = performance.now.bind(performance); performance.now = () => was() + 5000; }")
    tab.ask("""for (const repeat of [false, false, true]) document.getElementById('message').dispatchEvent(
        new KeyboardEvent('keydown', { key: 'Enter', repeat, bubbles: true, cancelable: true }))""")
    tab.shows("second.txt", ".question:not(.fresh) h2")
    assert "sorted(parts)" in (served.folders.work / "parser.py").read_text()
    assert not (served.folders.work / "second.txt").exists()
    tab.answer(3)
    tab.wait_until_settled()
    tab.shows("Not done.", "#entries")


def test_a_message_that_is_too_long_for_the_server_is_given_back(tab: Tab) -> None:
    tab.ask("""(() => { const send = WebSocket.prototype.send; WebSocket.prototype.send = function (data) {
      if (data.includes('far too long')) this.dispatchEvent(new CloseEvent('close', { code: 1009 }));
      else send.call(this, data); }; })()""")
    tab.send_message("far too long")
    tab.shows("larger than the server accepts", "#notices")
    assert tab.ask("document.getElementById('message').value") == "far too long"


def test_a_session_that_is_not_there_is_told(browser: Browser, served: ServedPigeon, tab: Tab) -> None:
    other = Tab(browser, served, "nothing-here")
    other.shows("There is no session nothing-here", "#notices")
    other.shows("What shall we work on?")
    other.close()


def test_a_run_is_steered_queued_for_and_stopped_by_the_keyboard(tab: Tab, models: ModelServer) -> None:
    gate = Gate()
    models.answers(Text("Working on *it* ", closes=False), gate)
    tab.send_message("begin")
    gate.wait_reached()
    tab.shows("Working on it", "#live")
    tab.send_message("later, please")
    tab.shows("later, please", "#queue")
    tab.type("and at the end")
    tab.press("Enter", ALT)
    tab.shows("and at the end", "#queue")
    tab.click("#queue li:last-child button[aria-label='Remove this message']")
    tab.until("document.querySelectorAll('#queue li').length === 1")
    tab.press("Escape")
    tab.wait_until_settled()
    tab.shows("aborted", "#entries")
    # What waited for the work that was stopped is given back; it does not follow the next message.
    tab.lacks("#queue li")
    assert tab.ask("document.getElementById('message').value") == "later, please"
    models.answers("Something else.")
    tab.ask("document.getElementById('message').value = ''")
    tab.send_message("begin anew")
    tab.wait_until_settled()
    assert ("user", "later, please") not in said_in(models.requests[-1])


def test_the_live_text_is_what_the_record_becomes(tab: Tab, models: ModelServer) -> None:
    gates = [Gate(), Gate()]
    text = "First *paragraph*.\n\n- one\n- two\n\n```python\nx = 'live'\n"
    models.answers(Text(text, closes=False), gates[0], Text("```\n\nEnd."), gates[1])
    tab.send_message("write")
    gates[0].wait_reached()
    tab.until("document.querySelector('#live em')?.textContent === 'paragraph'")
    tab.until("document.querySelector('#live pre code .s')?.textContent.trim() === \"'live'\"")
    assert tab.ask("document.querySelectorAll('#live li').length") == 2
    assert tab.ask("document.getElementById('said').textContent") != text, "deltas are not read out"
    for gate in gates:
        gate.open()
    tab.wait_until_settled()
    tab.shows("End.", "#entries")
    tab.until("document.getElementById('said').textContent === 'The answer is complete.'")


def test_output_of_a_tool_is_seen_while_it_runs(tab: Tab, models: ModelServer, served: ServedPigeon) -> None:
    pipe = served.folders.work / "pipe"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    models.answers("Running.", Call("bash", {"command": "echo first line; cat pipe"}, id="slow"))
    models.answers("Finished.")
    tab.send_message("run it")
    tab.shows("first line", "[data-call=slow] .output")
    tab.shows("running", "[data-call=slow] summary")
    pipe.write_text("last line\n")
    tab.wait_until_settled()
    tab.shows("last line", "#entries [data-call=slow]")


def test_two_tabs_agree_and_a_question_is_answered_once(
    tab: Tab, browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    session = tab.ask("new URLSearchParams(location.search).get('session')")
    models.answers("Sorting.", EDIT)
    models.answers("Both see this.")
    tab.send_message("sort")
    tab.shows("Allow once", ".permission")
    other = Tab(browser, served, session, PHONE, "dark")
    other.shows("return sorted(parts)", ".permission ins")
    other.click(".permission:not(.fresh) [data-choice='1']")
    tab.lacks(".permission")
    tab.wait_until_settled()
    other.wait_until_settled()
    tab.shows("Both see this.", "#entries")
    other.shows("Both see this.", "#entries")
    words = "document.getElementById('entries').innerText.replace(/\\s+/g, ' ').length > 0"
    assert tab.ask(words) is other.ask(words) is True
    assert other.overflow() == 0
    assert other.complaints() == []
    other.ask("document.getElementById('thinking').value = 'high'")
    other.ask("document.getElementById('thinking').dispatchEvent(new Event('change'))")
    tab.until("document.getElementById('thinking').value === 'high'")
    other.close()


def test_a_broken_connection_comes_back_by_itself_without_a_loss(
    tab: Tab, models: ModelServer, served: ServedPigeon
) -> None:
    gate = Gate()
    models.answers(Text("Before. ", closes=False), gate, Text("After."))
    tab.send_message("talk on")
    gate.wait_reached()
    tab.shows("Before.", "#live")
    served.kill()
    tab.shows("The connection was lost", "#notices")
    gate.open()
    served.start()
    tab.ask("dispatchEvent(new Event('online'))")
    tab.wait_until_settled()
    tab.shows("Before.\n\nAfter.", "#entries")
    assert tab.ask("document.getElementById('entries').innerText.split('Before.').length") == 2
    assert int(tab.sockets()[-1].partition("?after=")[2]) > 0, "it goes on behind the last event that it has seen"


def test_a_new_process_of_the_agent_is_told_and_the_conversation_whole(
    tab: Tab, models: ModelServer, served: ServedPigeon
) -> None:
    gate = Gate()
    models.answers(Text("Half of an ", closes=False), gate)
    tab.send_message("talk")
    gate.wait_reached()
    tab.shows("Half of an", "#live")
    session = tab.ask("new URLSearchParams(location.search).get('session')")
    os.kill(served.call("GET", f"/api/sessions/{session}")["pid"], signal.SIGKILL)
    tab.shows("The agent was restarted", "#notices")
    tab.wait_until_settled()
    models.answers("Here again.")
    tab.send_message("still there?")
    tab.shows("Here again.", "#entries")
    assert tab.ask("document.querySelectorAll('#entries article.user').length") == 2


def test_images_are_attached_by_paste_and_commands_completed(tab: Tab, models: ModelServer) -> None:
    models.answers("A picture.")
    tab.ask(f"({PASTE})()")
    tab.until("document.querySelector('#pictures img')?.naturalWidth === 2")
    tab.send_message("what is it?")
    tab.shows("A picture.", "#entries")
    sent = [message for message in models.requests[-1]["messages"] if message["role"] == "user"]
    assert "image" in [block["type"] for message in sent for block in message["content"]], sent
    tab.until("document.querySelector('#entries article.user img')?.naturalWidth === 2")
    tab.type("/na")
    tab.shows("name this session", "#completions")
    tab.press("Enter")
    tab.type("Pictures")
    tab.press("Enter")
    tab.shows("Pictures", "#title")


PASTE = """async () => {
  const canvas = document.createElement('canvas'); canvas.width = canvas.height = 2;
  const blob = await new Promise(done => canvas.toBlob(done, 'image/png'));
  const data = new DataTransfer(); data.items.add(new File([blob], 'dot.png', {type: 'image/png'}));
  const pasted = new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true});
  document.getElementById('message').dispatchEvent(pasted);
}"""


def test_an_image_is_attached_by_dropping_it(tab: Tab, models: ModelServer) -> None:
    models.answers("A dropped picture.")
    tab.ask(f"({DROP})()")
    tab.until("document.querySelector('#pictures img')?.naturalWidth === 2")
    assert tab.ask("document.body.classList.contains('dropping')") is False
    tab.send_message("and this?")
    tab.shows("A dropped picture.", "#entries")
    tab.until("document.querySelector('#entries article.user img')?.naturalWidth === 2")


DROP = """async () => {
  const canvas = document.createElement('canvas'); canvas.width = canvas.height = 2;
  const blob = await new Promise(done => canvas.toBlob(done, 'image/png'));
  const data = new DataTransfer(); data.items.add(new File([blob], 'dot.png', {type: 'image/png'}));
  const about = {dataTransfer: data, bubbles: true, cancelable: true};
  document.body.dispatchEvent(new DragEvent('dragover', about));
  if (!document.body.classList.contains('dropping')) throw new Error('nothing shows where it may be dropped');
  document.body.dispatchEvent(new DragEvent('drop', about));
}"""


def test_dialogs_of_an_extension_are_answered_and_say_how_much_time_is_left(
    browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    folder = served.folders.agent / "extensions"
    folder.mkdir(exist_ok=True)
    (folder / "asking.py").write_text(ASKING_EXTENSION)
    session = served.new_session()
    tab = Tab(browser, served, session)
    tab.wait_until_settled()
    tab.send_message("/ask")
    tab.press("Enter")
    tab.shows("Which colour?", ".question")
    tab.shows("Closes in", ".question")
    tab.until("/Closes in (\\d+) s/.exec(document.querySelector('.question').innerText)?.[1] < 99")
    again = Tab(browser, served, session)
    again.shows("Which colour?", ".question")
    left = int(again.ask("/Closes in (\\d+) s/.exec(document.querySelector('.question').innerText)[1]"))
    assert left < 100, "a page that comes later shows the time that is left"
    again.close()
    tab.answer(2)
    tab.shows("Really?", ".question")
    tab.answer(1)
    tab.shows("Your name?", ".question")
    tab.until("document.activeElement.matches('.question input')")
    tab.type("Ada")
    tab.press("Enter")
    tab.shows("A few lines?", ".question")
    tab.until("document.querySelector('.question textarea')?.value === 'one'")
    tab.ask("document.querySelector('.question textarea').value += '\\ntwo'")
    tab.click(".question button[type=submit]")
    tab.shows("blue True Ada one/two", "#notices")
    tab.lacks(".question")
    (folder / "asking.py").unlink()
    tab.close()


ASKING_EXTENSION = """
from pigeon.extensions import Extension

ext = Extension("asking")


@ext.command("ask", help="asks")
async def ask(arguments, ctx):
    colour = await ctx.ui.select("Which colour?", ["red", "blue"], timeout=100)
    sure = await ctx.ui.confirm("Really?", "It stays so.")
    name = await ctx.ui.input("Your name?", "a name")
    lines = await ctx.ui.editor("A few lines?", "one")
    ctx.ui.notify(f"{colour} {sure} {name} {lines.replace(chr(10), '/')}")
"""


def test_a_gap_is_told_and_the_conversation_read_anew(tab: Tab, models: ModelServer) -> None:
    models.answers("Before the gap.")
    tab.send_message("talk")
    tab.shows("Before the gap.", "#entries")
    tab.wait_until_settled()
    # A number that the log does not have is treated as one that it does not reach back to.
    tab.call(
        "Page.addScriptToEvaluateOnNewDocument",
        source="""const Real = WebSocket; window.WebSocket = class extends Real {
      constructor(address, offered) {
        super(address.replace(/after=\\d+/, 'after=999999999'), offered);
        window.WebSocket = Real;
      } };""",
    )
    tab.call("Page.reload")
    tab.shows("reloaded", "#notices")
    tab.wait_until_settled()
    models.answers("Behind the gap.")
    tab.send_message("go on")
    tab.shows("Behind the gap.", "#entries")
    assert tab.ask("document.getElementById('entries').innerText.split('Before the gap.').length") == 2


def test_the_export_is_a_page_with_what_was_said(tab: Tab, models: ModelServer, served: ServedPigeon) -> None:
    models.answers("Worth keeping.")
    tab.send_message("say it")
    tab.shows("Worth keeping.", "#entries")
    tab.wait_until_settled()
    tab.ask(
        "window.saved = new Promise((done) => {"
        " URL.createObjectURL = (blob) => { done(blob.text()); return 'blob:x'; };"
        " HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; }; }), null"
    )
    tab.ask("document.querySelector('#export').click()")
    page = tab.ask("window.saved")
    assert "Worth keeping." in page
    assert "<html" in page
    assert tab.ask("window.savedAs").endswith(".html")


def test_another_branch_is_gone_to_and_everything_is_found(tab: Tab, models: ModelServer) -> None:
    for word in ("alpha", "beta"):
        models.answers(f"answer about {word}")
        tab.send_message(f"question about {word}")
        tab.wait_until_settled()
        tab.shows(f"answer about {word}", "#entries")
    tab.ask("[...document.querySelectorAll('button.back')].at(-1).click()")
    tab.until("document.getElementById('message').value === 'question about beta'")
    models.answers("answer about gamma")
    tab.ask("document.getElementById('message').value = ''")
    tab.send_message("question about gamma")
    tab.wait_until_settled()
    tab.shows("answer about gamma", "#entries")
    assert "beta" not in tab.ask("document.getElementById('entries').innerText")
    tab.press("b", ALT)
    tab.shows("question about beta", "dialog")
    tab.ask("[...document.querySelectorAll('dialog button')].find(one => one.textContent.includes('beta')).click()")
    tab.shows("answer about beta", "#entries")
    tab.press("f", ALT)
    tab.type("ALPHA")
    tab.shows("2 found", "#search")
    tab.press("Enter")
    tab.until("document.querySelector('.found')?.innerText.includes('answer about alpha')")
    tab.press("Escape")
    tab.lacks("#search")


def test_the_first_paint_is_small_and_nothing_comes_from_elsewhere(
    browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    tab = Tab(browser, served)
    tab.shows("Start a session")
    sizes = "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
    assert tab.ask(f"{sizes}.reduce((sum, one) => sum + one.encodedBodySize, 0)") < 100_000
    assert {url.partition("/page/")[0].partition("/api/")[0] for url in tab.requests()} == {served.url}
    # What the page names itself is asked for at once: no script waits for another one to name it.
    assert tab.ask(f"{sizes}.length") < 25
    assert tab.ask(LATE_SCRIPTS) == []
    policy = tab.ask("fetch('/').then(answer => answer.headers.get('content-security-policy'))")
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    tab.close()


LATE_SCRIPTS = """performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)
  .filter((path) => path.endsWith('.js') && !document.querySelector(`[href="${path}"], [src="${path}"]`))"""


def test_a_folder_is_chosen_and_a_session_started_there_with_the_keyboard(
    browser: Browser, served: ServedPigeon, models: ModelServer
) -> None:
    (served.folders.work / "inner").mkdir(exist_ok=True)
    tab = Tab(browser, served)
    tab.shows("Start a session")
    tab.press("n", ALT)
    tab.until("document.activeElement?.id === 'folder-path'")
    tab.ask("document.activeElement.select()")
    tab.type(str(served.folders.work / "inner"))
    tab.press("Enter")
    tab.until("document.activeElement?.id === 'message'")
    tab.shows("/inner", "#folder")
    models.answers("Here.")
    tab.send_message("where?")
    tab.shows("Here.", "#entries")
    tab.press("k", ALT)
    tab.type("where")
    tab.until("document.querySelector('#sessions a')?.innerText.startsWith('where?')")
    tab.press("ArrowDown")
    tab.until("document.activeElement.innerText.startsWith('where?')")
    tab.ask("document.activeElement.blur()")
    tab.press("?")
    tab.shows("Keyboard shortcuts", "dialog")
    tab.press("Escape")
    tab.lacks("dialog")
    tab.close()


def test_what_a_tool_or_a_model_writes_runs_nothing(tab: Tab, models: ModelServer) -> None:
    attack = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>[x](javascript:alert(1))"
    )
    models.answers(Text(attack), Call("bash", {"command": f"echo {json.dumps(attack)}"}))
    models.answers(attack)
    tab.send_message(attack)
    tab.wait_until_settled()
    tab.shows("onerror", "#entries")
    assert "owned" not in tab.ask("document.title").replace(attack, "")
    assert (
        tab.ask("document.querySelectorAll('#entries script, #entries img, #entries [href^=javascript]').length") == 0
    )


def test_a_thousand_deltas_cost_the_browser_less_than_half_a_second(tab: Tab, models: ModelServer) -> None:
    tab.call("Performance.enable")
    before = _seconds_of_work(tab)
    words = "Some *words* of prose, with `code`.\n\n- an item\n\n```python\nx = 'live'\n```\n\n"
    models.answers(Text(words * 100 + "The end.", piece=4))
    tab.send_message("write much")
    tab.shows("The end.", "#entries")
    assert _seconds_of_work(tab) - before < len(words) * 100 / 4 / 1000 * 0.5


def _seconds_of_work(tab: Tab) -> float:
    """Seconds of work for scripts and layout so far."""
    figures = {one["name"]: one["value"] for one in tab.call("Performance.getMetrics")["metrics"]}
    return float(figures["ScriptDuration"] + figures["LayoutDuration"] + figures["RecalcStyleDuration"])


@pytest.mark.interop
def test_nothing_serious_is_found_by_axe(tab: Tab, browser: Browser, served: ServedPigeon, models: ModelServer) -> None:
    source = (npm_source("axe-core", AXE) / "axe.min.js").read_text()
    models.answers(Thinking("hm"), "Here is a *list*:\n\n1. one\n2. two\n", Call("read", {"path": "parser.py"}))
    models.answers(EDIT)
    models.answers("Done.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    tab.send_message("sort")
    tab.shows("Allow once", ".permission")
    phone = Tab(browser, served, tab.ask("new URLSearchParams(location.search).get('session')"), PHONE, "dark")
    phone.shows("return sorted(parts)", ".permission ins")
    assert found_by_axe(phone, source) == []
    tab.answer(1)
    tab.wait_until_settled()
    phone.wait_until_settled()
    phone.press("c", ALT)
    phone.until("document.querySelector('.review .diff')?.checkVisibility()")
    assert found_by_axe(phone, source) == []
    tab.press("f", ALT)
    tab.type("sort")
    tab.until("document.querySelector('.hits li')")
    assert found_by_axe(tab, source) == []
    tab.press("Escape")
    tab.press("n", ALT)
    tab.until("document.querySelector('dialog .folders li')")
    assert found_by_axe(tab, source) == []
    phone.close()


def test_a_session_of_five_thousand_messages_opens_at_once(
    browser: Browser, served: ServedPigeon, tmp_path: Path
) -> None:
    session = _long_session(served, 5000)
    tab = Tab(browser, served, session)
    tab.shows("answer 4999", "#entries")
    assert tab.count_received() < 200_000, "the newest messages came, and not all"
    assert tab.ask("document.querySelectorAll('.piece').length") < 60
    for _ in range(6):
        first = tab.ask("document.querySelector('.piece').dataset.entry")
        tab.ask("document.getElementById('scroll').scrollTop = 0")
        tab.until(f"document.querySelector('.piece').dataset.entry !== {first!r}")
    assert tab.ask("document.querySelectorAll('.piece').length") <= 160
    assert "answer 4999" not in tab.ask("document.getElementById('entries').innerText")
    tab.press("j", ALT)
    tab.shows("answer 4999", "#entries")
    tab.press("f", ALT)
    tab.type("question 1234")
    tab.shows("1 found", "#search")
    tab.press("Enter")
    tab.until("document.querySelector('.found')?.innerText.includes('question 1234')")
    tab.close()


def _long_session(served: ServedPigeon, messages: int) -> str:
    """A session on disk that the server did not make."""
    id = "01a1968d-3900-7f16-b276-fd0456149700"
    head = {"type": "session", "version": 3, "id": id, "timestamp": "2026-01-01T00:00:00.000Z"}
    lines = [{**head, "cwd": str(served.folders.work)}]
    usage = {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2}
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
    for number in range(messages):
        message: dict[str, object] = {"role": "user", "content": f"question {number}", "timestamp": 1767225600000}
        if number % 2:
            content = [{"type": "text", "text": f"answer {number} with *words*"}]
            about = {"api": "anthropic-messages", "provider": "fake", "model": "fake-1", "stopReason": "stop"}
            message = {**message, **about, "role": "assistant", "content": content, "usage": {**usage, "cost": cost}}
        parent = f"{number - 1:08x}" if number else None
        entry = {"type": "message", "id": f"{number:08x}", "parentId": parent, "timestamp": "2026-01-01T00:00:00.000Z"}
        lines.append({**entry, "message": message})
    folder = served.folders.agent / "sessions" / f"--{str(served.folders.work).strip('/').replace('/', '-')}--"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"2026-01-01T00-00-00-000Z_{id}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return id
