"""The page where no provider has a key: it says why there is no model, and what to do."""

from __future__ import annotations

from pathlib import Path

from support.agent_folders import AgentFolders
from support.browser import NEEDS_BROWSER, PHONE, Browser, Tab
from support.pigeon_serve import PigeonServer

pytestmark = NEEDS_BROWSER
BOX = "document.getElementById('message')"
# Words of the protocol, which mean nothing to a person.
TERMS = ("set_model", "--mode", "rpc")
# What the button for the model says before the agent has answered, and when it has none.
STARTING = """(async () => {
  const { Composer } = await import('/page/composer.js');
  const shown = [];
  const conversation = { id: 'x', state: {}, queue: [], on: { changed() {} }, ask: () => new Promise(() => {}) };
  const composer = new Composer({}, () => ({ noteText() {}, isReply: false, canReply: false }));
  composer.use(conversation);
  composer._showModels();
  shown.push(document.getElementById('model').textContent);
  conversation.state = { model: null, thinkingLevel: 'off' };
  composer._showModels();
  shown.push(document.getElementById('model').textContent);
  return shown; })()"""


def test_a_page_without_a_key_explains_how_to_get_a_model_and_offers_the_demo(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    # A browser of its own: cookies of two servers of one machine replace each other.
    with (
        PigeonServer(folders, "--root", str(folders.work)) as server,
        Browser(tmp_path / "chromium") as browser,
    ):
        session = server.call("POST", "/api/sessions", {"cwd": str(folders.work)})["id"]
        Tab(browser, server, link=True)
        tab = Tab(browser, server, session, PHONE)
        tab.shows("No model yet", "#start")
        tab.shows("export ANTHROPIC_API_KEY", "#start")
        assert tab.overflow() == 0
        tab.click("#model")
        tab.shows("export ANTHROPIC_API_KEY", "dialog")
        tab.press("Escape")
        tab.lacks("dialog")
        tab.ask(f"{BOX}.focus()")
        tab.type("list the files")
        tab.click("#send")
        tab.shows("No model yet", "dialog")
        assert tab.ask(f"{BOX}.value") == "list the files", "the message is given back"
        shown = tab.ask("document.body.innerText")
        assert not [term for term in TERMS if term in shown]
        tab.click("dialog button.first")
        tab.lacks("dialog")
        tab.until("document.getElementById('model').textContent.startsWith('Demo')")
        tab.click("#send")
        tab.shows("bash ls", "#entries")
        tab.wait_until_settled()
        assert tab.ask(STARTING) == ["…", "Choose a model"]
        assert tab.complaints() == []
        tab.close()
