"""A real browser for tests that look at pages: Debian's chromium, spoken to through a pipe.

One browser serves all pages of a test run; its protocol (Chrome DevTools, JSON records that end with a NUL) needs no
further library. `chromium_path` is none where there is no browser: such tests are skipped, and say so.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

import pytest


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
        """One command to this page."""
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

    def received(self) -> int:
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
        """Print it as PDF."""
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def _events(self, method: str) -> list[dict[str, Any]]:
        mine = (event for event in self._browser.events if event.get("sessionId") == self._session)
        return [event for event in mine if event.get("method") == method]
