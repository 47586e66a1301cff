"""The page of `pigeon serve` in a real browser: a server of its own with a scripted model, and tabs that look at it."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any, Self

from fakes.agent_folders import AgentFolders, Record, providers
from fakes.browser import Browser, BrowserPage
from fakes.model_server import Call, ModelServer
from fakes.rpc_process import start_server

DESK, PHONE = (1280, 900), (390, 844)
ASKING = {"permissions": {"ask": ["edit", "write"]}}
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


class ServedPigeon:
    """A running server; use as a context manager."""

    def __init__(self, root: Path, models: ModelServer, settings: Record | None = None) -> None:
        self.folders = AgentFolders(root)
        self.folders.configure(providers(models.url), settings)
        self.models = models
        self._start(0)

    def _start(self, port: int) -> None:
        arguments = ["serve", "--port", str(port), "--root", str(self.folders.work), "--model", "fake/fake-1"]
        log = self.folders.agent.parent / "serve.log"
        with log.open("ab") as errors:
            self.process = start_server(arguments, self.folders, errors.fileno())
        said = [self.process.stdout.readline().decode() for _ in range(2)]
        links = [found for line in said for found in re.findall(r"http://\S+", line)]
        assert len(links) == 2, log.read_text("utf-8")[-2000:]
        self.url, self.link = links[0], links[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server, as a signal does."""
        self.process.terminate()
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        """End it without a word; its workers live on."""
        self.process.kill()
        self.process.communicate(timeout=60)

    def start_again(self) -> None:
        """On the same port, after it was ended."""
        self._start(int(self.url.rpartition(":")[2]))

    def call(self, method: str, path: str, body: Record | None = None) -> Any:
        """A request with the token of the file."""
        token = (self.folders.agent / "serve.token").read_text().split()[1]
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def new_session(self) -> str:
        """A session in the folder of this server."""
        return str(self.call("POST", "/api/sessions", {"cwd": str(self.folders.work)})["id"])


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
        key, code, number, text = KEYS.get(name, (name, code if name.isalnum() else "", ord(name.upper()[0]), shown))
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def answer(self, number: str, modifiers: int = 0) -> None:
        """The number key of an option, once the question takes keys."""
        self.until("document.querySelector('.question:not(.fresh)')")
        self.press(number, modifiers)

    def say(self, text: str) -> None:
        """Write a message and send it."""
        box = "document.getElementById('message')"
        self.until(f"document.activeElement === {box} || ({box}.focus(), false)")
        self.type(text)
        self.press("Enter")

    def settled(self) -> None:
        """Wait until the agent has nothing to do and nothing is drawn that is not on record."""
        self.until(
            "!document.querySelector('[aria-busy]') && !document.getElementById('composer').hidden"
            " && document.getElementById('stop').hidden && document.getElementById('live').children.length === 0"
        )
