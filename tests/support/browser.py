"""Pages as a person and an attacker see them: a real browser, the page of `pigeon serve` in it, and a strict reader.

The browser is Debian's chromium, spoken to through a pipe. One serves all pages of a test run; its protocol (Chrome
DevTools, JSON records that end with a NUL) needs no further library. `chromium_path` is None where there is no browser:
such tests are skipped, and say so. `PageReader` reads a page as a browser's parser does, and says what in it could run;
`ATTACKS` are texts that would run, load or break something if a page took them for markup.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, Record, providers
from support.pigeon_serve import PigeonServer

DESK, PHONE = (1280, 900), (390, 844)
ASKING = {"permissions": {"ask": ["edit", "write"]}}
# For `Tab.ask`: the person pauses.
LATER = "{ const was = performance.now.bind(performance); performance.now = () => was() + 5000; }"
PARSER = "def parse(text):\n    parts = text.split(',')\n    return parts\n"
EDIT = Call("edit", {"path": "parser.py", "edits": [{"oldText": "return parts", "newText": "return sorted(parts)"}]})
# Keys as the browser names them: (key, code, number, text).
KEYS = {
    "Enter": ("Enter", "Enter", 13, "\r"),
    "Tab": ("Tab", "Tab", 9, ""),
    "Escape": ("Escape", "Escape", 27, ""),
    "ArrowDown": ("ArrowDown", "ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", "ArrowUp", 38, ""),
}
ALT, SHIFT = 1, 8
ALLOWED = {
    "a", "article", "b", "blockquote", "body", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em",
    "fieldset", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html", "img", "input",
    "ins", "label", "li", "line", "main", "meta", "nav", "ol", "p", "path", "pre", "rect", "s", "span", "strong",
    "style", "summary", "svg", "table", "tbody", "td", "text", "th", "thead", "time", "title", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "title", "rel", "class", "aria-label"}, "article": {"class", "id"},
    "code": {"data-language"}, "dd": {"class"},
    "del": {"data-n"}, "details": {"class", "open", "id", "data-call"}, "div": {"dir", "class"}, "dl": {"class"},
    "header": {"class"}, "html": {"lang"}, "img": {"alt", "src"}, "input": {"type", "class", "id", "name", "checked"},
    "ins": {"data-n"}, "label": {"class", "for"}, "li": {"class"}, "line": {"x1", "x2", "y1", "y2"}, "main": {"id"},
    "meta": {"charset", "http-equiv", "content", "name"}, "nav": {"class", "aria-label"}, "ol": {"start"},
    "p": {"class", "id"}, "path": {"class", "d"}, "pre": {"class", "aria-hidden"},
    "rect": {"class", "x", "y", "width", "height"}, "span": {"class", "data-n", "data-new", "aria-hidden"},
    "svg": {"role", "viewbox", "aria-label"}, "text": {"x", "y", "class", "text-anchor"},
    "time": {"datetime", "title"}, "ul": {"class"},
}  # fmt: skip
PICTURES = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))
ATTACKS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<ScRiPt\n>alert(1)</sCrIpT >",
    "<script/src=//evil.example/x.js></script>",
    "<<script>alert(1)//<</script>",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</pre></details></article><script>alert(1)</script>",
    "]]><script>alert(1)</script><![CDATA[",
    "--><script>alert(1)</script><!--",
    "<!--><img src=x onerror=alert(1)>-->",
    "<img src=x onerror=alert(1)>",
    '<img src="x" onerror="alert(1)">',
    "<img/src='x'/onerror='alert(1)'>",
    "<img src=x:x onerror\n=\nalert(1)>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    '"><img src=x onerror=alert(1)>',
    "`onmouseover=alert(1)",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><a xlink:href='javascript:alert(1)'><text y=20>x</text></a></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<form><button formaction=javascript:alert(1)>x</button></form>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<style>@import '//evil.example/x.css';</style>",
    "<div style='background:url(javascript:alert(1))'>x</div>",
    "<p style=animation-name:x onanimationstart=alert(1)>",
    "<details open ontoggle=alert(1)><summary>x</summary></details>",
    "<body onload=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<audio src onloadstart=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<template><script>alert(1)</script></template>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href=' javascript:alert(1)'>x</a>",
    "<a href='java&#x09;script:alert(1)'>x</a>",
    "<a href='&#106;avascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&#x6A&#x61&#x76&#x61script:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](%6Aavascript:alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    "[x](file:///etc/passwd)",
    "[x](blob:https://evil.example/1)",
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "![x](javascript:alert(1))",
    "![x](https://evil.example/pixel.png)",
    '![x](x "onerror=alert(1)")',
    '![" onerror="alert(1)](x)',
    '[x](https://a.example "\\" onmouseover=\\"alert(1)")',
    "[<img src=x onerror=alert(1)>](https://a.example)",
    "`<script>alert(1)</script>`",
    "```<script>\n<script>alert(1)</script>\n```",
    '```" onload="alert(1)\nx\n```',
    "    <script>alert(1)</script>",
    "| <script>alert(1)</script> |\n|---|\n| <img src=x onerror=alert(1)> |",
    "> <script>alert(1)</script>",
    "# <script>alert(1)</script>",
    "- <script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\\<script>alert(1)\\</script>",
    "<script>alert(1)</script>\x00",
    "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "\ufeff<script>alert(1)</script>",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "\u2028<script>alert(1)</script>",
    "\ud800<script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
]


def chromium_path() -> str | None:
    """The browser, if there is one on this machine."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


NEEDS_BROWSER = pytest.mark.skipif(
    chromium_path() is None, reason="there is no chromium here; .ci/run installs it where it can"
)


class Browser:
    """A browser without a window; `with Browser(folder) as browser`. `more` are further options of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        program = chromium_path()
        assert program is not None
        reads, self._writes = os.pipe()
        self._reads, writes = os.pipe()
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync",
            "--disable-component-update", "--disable-quic",
            "--remote-debugging-pipe", f"--user-data-dir={folder}", *more, "about:blank",
        ]  # fmt: skip
        # The browser reads from descriptor 3 and writes to descriptor 4.
        script = f'exec "$0" "$@" 3<&{reads} 4>&{writes}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, *options],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(reads)
        os.close(writes)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._writes)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._reads)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are kept."""
        self._number += 1
        record: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            record["sessionId"] = session
        data = json.dumps(record).encode() + b"\0"
        while data:
            data = data[os.write(self._writes, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def forget(self, session: str) -> None:
        """Drop what has come from a page so far."""
        self.events = [event for event in self.events if event.get("sessionId") != session]

    def wait_for(self, method: str, session: str) -> None:
        """Until an event of this name has come from a page."""
        while not any((event.get("method"), event.get("sessionId")) == (method, session) for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._reads, 1 << 16)
            assert more, "the browser has ended"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        record: dict[str, Any] = json.loads(line)
        return record


class BrowserPage:
    """A file or an address, opened at a size and in a colour scheme (`light` or `dark`).

    `context` is one of `Target.createBrowserContext`, which has cookies of its own.
    """

    def __init__(
        self,
        browser: Browser,
        opened: Path | str,
        width: int,
        height: int,
        scheme: str = "light",
        context: str | None = None,
    ) -> None:
        self._browser = browser
        apart = {} if context is None else {"browserContextId": context}
        self._target = browser.call("Target.createTarget", url="about:blank", **apart)["targetId"]
        self._session = str(browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"])
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.forget(self._session)
        self.call("Page.navigate", url=opened.as_uri() if isinstance(opened, Path) else opened)
        browser.wait_for("Page.loadEventFired", self._session)

    def close(self) -> None:
        """Close the tab, and forget what it has said."""
        self._browser.call("Target.closeTarget", targetId=self._target)
        self._browser.forget(self._session)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; the page itself may run none."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """What the browser's console says: errors, refused styles and scripts."""
        self.ask("1")
        logged = [event["params"]["entry"] for event in self._events("Log.entryAdded")]
        thrown = self._events("Runtime.exceptionThrown") + self._events("Runtime.consoleAPICalled")
        return [str(entry) for entry in logged] + [str(event["params"]) for event in thrown]

    def requests(self) -> list[str]:
        """The addresses that were asked for, besides the file and what it holds."""
        asked = [str(event["params"]["request"]["url"]) for event in self._events("Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith("data:")][1:]

    def sockets(self) -> list[str]:
        """The addresses of the WebSockets that were opened."""
        self.ask("1")
        return [str(event["params"]["url"]) for event in self._events("Network.webSocketCreated")]

    def count_received(self) -> int:
        """How many characters have come through WebSockets so far."""
        self.ask("1")
        frames = self._events("Network.webSocketFrameReceived")
        return sum(len(event["params"]["response"]["payloadData"]) for event in frames)

    def overflow(self) -> int:
        """By how much the page is wider than the screen."""
        return int(self.ask("document.documentElement.scrollWidth - window.innerWidth"))

    def picture(self, file: Path, full: bool = False) -> None:
        """Save what is seen, or all of the page, as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        file.write_bytes(base64.b64decode(answer["data"]))

    def paper(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def _events(self, method: str) -> list[dict[str, Any]]:
        mine = (event for event in self._browser.events if event.get("sessionId") == self._session)
        return [event for event in mine if event.get("method") == method]


class ServedPigeon(PigeonServer):
    """A server whose model is that of the test."""

    def __init__(self, root: Path, models: ModelServer, settings: Record | None = None) -> None:
        folders = AgentFolders(root)
        folders.configure(providers(models.url), settings)
        self.models = models
        super().__init__(folders, "--root", str(folders.work), "--model", "fake/fake-1")

    def new_session(self, **more: Any) -> str:
        """A session in the folder of this server."""
        return str(self.call("POST", "/api/sessions", {"cwd": str(self.folders.work), **more})["id"])


class Tab(BrowserPage):
    """A tab that shows a session, or the list of them; signed in by the server's link if `link` says so."""

    def __init__(
        self,
        browser: Browser,
        served: ServedPigeon,
        session: str | None = None,
        size: tuple[int, int] = DESK,
        scheme: str = "light",
        link: bool = False,
    ) -> None:
        if link:
            BrowserPage(browser, served.link, *DESK)
        address = f"{served.url}/" if session is None else f"{served.url}/?session={session}"
        super().__init__(browser, address, *size, scheme)

    def until(self, condition: str, seconds: float = 20) -> Any:
        """Wait in the page until an expression holds; gives its value."""
        script = f"""new Promise((done, failed) => {{ const end = Date.now() + {seconds * 1000};
          const look = () => {{ let value; try {{ value = ({condition}); }} catch (error) {{ value = false; }}
            if (value) done(value); else if (Date.now() > end) failed(new Error(
              'never: ' + {json.dumps(condition)} + document.body.innerText.slice(0, 3000)));
            else setTimeout(look, 15); }}; look(); }})"""
        return self.ask(script)

    def shows(self, text: str, where: str = "body") -> None:
        """Wait until there is this text."""
        self.until(f"document.querySelector({json.dumps(where)})?.innerText.includes({json.dumps(text)})")

    def lacks(self, selector: str) -> None:
        """Wait until nothing that can be seen matches."""
        self.until(f"![...document.querySelectorAll({json.dumps(selector)})].some(one => one.checkVisibility())")

    def click(self, selector: str) -> None:
        """Click what matches, once it is there."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.until(f"{found}?.checkVisibility() && !{found}.disabled")
        self.ask(f"{found}.click()")

    def type(self, text: str) -> None:
        """Letters, as a keyboard sends them."""
        self.call("Input.insertText", text=text)

    def press(self, name: str, modifiers: int = 0) -> None:
        """One key; a letter or digit, or one of `KEYS`."""
        code = f"Digit{name}" if name.isdigit() else f"Key{name.upper()}"
        shown = "" if modifiers & ALT else name
        number = ord(name.upper()[0]) if name.isalnum() or name == " " else 0
        key, code, number, text = KEYS.get(name, (name, code if name.isalnum() else "", number, shown))
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def answer(self, number: int) -> None:
        """Click an answer of the first question, once it takes clicks."""
        self.click(f".question:not(.fresh) [data-choice='{number}']")

    def send_message(self, text: str) -> None:
        """Write a message and send it."""
        box = "document.getElementById('message')"
        self.until(f"document.activeElement === {box} || ({box}.focus(), false)")
        self.type(text)
        self.press("Enter")

    def wait_until_settled(self) -> None:
        """Wait until the agent has nothing to do and nothing is drawn that is not on record."""
        self.until(
            "!document.querySelector('[aria-busy]') && !document.getElementById('composer').hidden"
            " && document.getElementById('stop').hidden && document.getElementById('live').children.length === 0"
        )


def found_by_axe(tab: Tab, source: str) -> list[object]:
    """What is serious or critical, with the elements it is about."""
    tab.ask(f"{source};1")
    shown = "({id, nodes}) => [id, ...nodes.map(one => one.html.slice(0, 120) + one.failureSummary.slice(0, 300))]"
    serious = "found.violations.filter(one => ['serious', 'critical'].includes(one.impact))"
    found = tab.ask(f"axe.run().then(found => {serious}.map({shown}))")
    assert isinstance(found, list)
    return found


class PageReader(HTMLParser):
    """The text of a page, its pictures and links, and every construct that has no business in it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.policy = ""
        self.styles = 0
        self._text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()

    @property
    def text(self) -> str:
        """Everything that a reader sees."""
        return "".join(self._text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ALLOWED:
            self.faults.append(f"<{tag}>")
        if tag == "style":
            self.styles += 1
        if tag not in ("meta", "img", "br", "hr", "input"):
            self._open.append(tag)
        for name, value in attrs:
            self._attribute(tag, name, value or "")
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs).get("content") or ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing of its own")

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self._text.append(data)

    def handle_comment(self, data: str) -> None:
        self.faults.append("a comment")

    def handle_pi(self, data: str) -> None:
        self.faults.append("a processing instruction")

    def unknown_decl(self, data: str) -> None:
        self.faults.append("a declaration")

    def _attribute(self, tag: str, name: str, value: str) -> None:
        if name not in ATTRIBUTES.get(tag, set()):
            self.faults.append(f"<{tag} {name}>")
        if name == "data-language" and re.fullmatch(r"[A-Za-z][\w.+#-]{0,23}", value) is None:
            self.faults.append(f"language {value[:60]}")
        if name == "href":
            self.links.append(value)
            if not value.startswith("#") and urlsplit(value).scheme.lower() not in ("http", "https", "mailto"):
                self.faults.append(f"link to {value}")
        if name == "src":
            self.pictures.append(value)
            if not value.startswith(PICTURES):
                self.faults.append(f"picture from {value[:60]}")
