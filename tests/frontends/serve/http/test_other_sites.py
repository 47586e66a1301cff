"""Pages of other sites in a real browser that has our cookie: they read nothing, send nothing and open no socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.browser import Browser, BrowserPage, chromium_path
from support.pigeon_serve import AttackedServer
from support.processes import eventually

pytestmark = pytest.mark.skipif(chromium_path() is None, reason="there is no chromium on this machine")
SIZE = (800, 600)
# What a page tries, and what came of it: the word "refused", or what it got.
TRIES = """
(async () => {
  const at = %(at)s, session = %(session)s;
  const tried = async (way) => { try { return await way(); } catch { return "refused"; } };
  const asked = (path, options) => fetch(at + path, {credentials: "include", ...options});
  const seen = async (answer) => answer.type === "opaque" ? "refused" : answer.text();
  const opened = (address) => new Promise((done) => {
    const socket = new WebSocket(address);
    socket.onopen = () => done("opened");
    socket.onerror = () => done("refused");
  });
  const element = (name, members) => new Promise((done) => {
    const made = Object.assign(document.createElement(name), members);
    made.onload = () => done("loaded");
    made.onerror = () => done("refused");
    document.body.append(made);
  });
  const json = {"content-type": "application/json"};
  const plain = {"content-type": "text/plain"};
  const body = JSON.stringify({cwd: %(work)s});
  return {
    read: await tried(async () => seen(await asked("/api/sessions"))),
    readOpaque: await tried(async () => seen(await asked("/api/sessions", {mode: "no-cors"}))),
    metrics: await tried(async () => seen(await asked("/metrics"))),
    post: await tried(async () => seen(await asked("/api/sessions", {method: "POST", headers: json, body}))),
    postPlain: await tried(async () =>
      seen(await asked("/api/sessions", {method: "POST", mode: "no-cors", headers: plain, body}))),
    remove: await tried(async () => seen(await asked("/api/sessions/" + session, {method: "DELETE"}))),
    socket: await tried(() => opened(at.replace("http", "ws") + "/api/sessions/" + session + "/rpc")),
    script: await element("script", {src: at + "/page/app.js"}),
    picture: await element("img", {src: at + "/page/icon.svg"}),
  };
})()
"""


# The headers of the requests that the other server has seen.
received: list[Message] = []


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        received.append(self.headers)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title><body></body>")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def other() -> Iterator[int]:
    """The port of another server on this machine."""
    pages = ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage)
    thread = threading.Thread(target=pages.serve_forever)
    thread.start()
    yield pages.server_address[1]
    pages.shutdown()
    thread.join()
    pages.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, server: AttackedServer) -> Iterator[Browser]:
    """A browser that was let in, and in whose DNS other names lead to us."""
    rules = "--host-resolver-rules=MAP *.example 127.0.0.1, MAP localhost 127.0.0.1"
    with Browser(tmp_path_factory.mktemp("chromium"), rules) as started:
        path = server.ask("POST", "/api/links", {}, scope="admin").json()["path"]
        page = BrowserPage(started, f"{server.url}{path}", *SIZE)
        assert "sessions" in page.ask("import('/page/dom.js').then(({ request }) => request('/api/sessions'))")
        page.close()
        yield started


def tries(server: AttackedServer, session: str, page: BrowserPage, at: str) -> dict[str, str]:
    values = {"at": at, "session": session, "work": str(server.folders.work)}
    found: dict[str, str] = page.ask(TRIES % {name: json.dumps(value) for name, value in values.items()})
    return found


# Another port of the same host is the same site to a browser: it sends the cookie there, whatever its SameSite says.
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example"])
def test_a_page_of_another_origin_gets_nowhere(server: AttackedServer, browser: Browser, other: int, host: str) -> None:
    session = server.new()
    before = len(server.ask("GET", "/api/sessions", scope="read").json()["sessions"])
    page = BrowserPage(browser, f"http://{host}:{other}/", *SIZE)
    found = tries(server, session, page, server.url)
    assert set(found.values()) == {"refused"}, found
    assert server.ask("GET", f"/api/sessions/{session}", scope="read").status == 200
    assert len(server.ask("GET", "/api/sessions", scope="read").json()["sessions"]) == before
    frames = page.ask(
        "new Promise((done) => { const frame = document.createElement('iframe');"
        f" frame.src = '{server.url}/'; frame.onload = () => done(frame.contentDocument === null || 'shown');"
        " document.body.append(frame); })"
    )
    assert frames is True
    page.close()


def test_a_name_that_was_bound_to_us_shows_nothing_of_ours(server: AttackedServer, browser: Browser) -> None:
    session = server.new()
    page = BrowserPage(browser, f"http://evil.example:{server.port}/", *SIZE)
    assert "This server is not called" in page.ask("document.body.innerText")
    found = tries(server, session, page, f"http://evil.example:{server.port}")
    for name in ("read", "readOpaque", "metrics", "post", "postPlain", "remove"):
        assert found[name] == "refused" or "This server is not called" in found[name], (name, found[name])
    assert found["socket"] == "refused"
    assert server.ask("GET", f"/api/sessions/{session}", scope="read").status == 200
    page.close()


def test_our_own_page_gets_through(server: AttackedServer, browser: Browser) -> None:
    session = server.new()
    page = BrowserPage(browser, f"{server.url}/", *SIZE)
    opened = page.ask(
        f"import('/page/dom.js').then(({{ openSocket }}) => openSocket('/api/sessions/{session}/rpc')).then((socket) =>"
        " new Promise((done) => { socket.onopen = () => done('opened'); socket.onerror = () => done('refused'); }))"
    )
    assert opened == "opened"
    page.close()


def test_the_cookie_that_a_server_on_another_port_receives_lets_it_in_nowhere(
    server: AttackedServer, browser: Browser, other: int
) -> None:
    received.clear()
    page = BrowserPage(browser, f"http://127.0.0.1:{other}/", *SIZE)
    assert page.ask("localStorage.length") == 0
    page.close()
    [cookie] = {headers["Cookie"] for headers in received if "Cookie" in headers}
    assert "pigeon_token=" in cookie
    assert server.ask("GET", "/api/sessions", headers={"Cookie": cookie}).status == 401
    assert server.ask("POST", "/api/links", {}, headers={"Cookie": cookie}).status == 401


@pytest.fixture
def newcomer(server: AttackedServer, browser: Browser) -> Iterator[BrowserPage]:
    """The page in a browser with cookies and a storage of its own, let in by a link."""
    path = server.ask("POST", "/api/links", {}, scope="admin").json()["path"]
    context = browser.call("Target.createBrowserContext")["browserContextId"]
    yield BrowserPage(browser, f"{server.url}{path}", *SIZE, context=context)
    browser.call("Target.disposeBrowserContext", browserContextId=context)


def test_the_key_of_the_page_is_in_no_address_that_the_browser_remembers(
    server: AttackedServer, newcomer: BrowserPage
) -> None:
    page = newcomer
    page.ask("import('/page/dom.js').then(() => null)")
    assert page.ask("[location.href, history.length]") == [f"{server.url}/", 2]
    assert page.ask("localStorage.getItem('pigeon-page-key').length") == 64


def test_a_page_without_its_key_says_how_to_get_in(newcomer: BrowserPage) -> None:
    newcomer.ask("localStorage.removeItem('pigeon-page-key')")
    newcomer.call("Page.reload")

    def is_shown() -> bool:
        with suppress(AssertionError):  # the page was left while it was asked
            return "You are not signed in" in newcomer.ask("document.body.innerText")
        return False

    assert eventually(is_shown)
