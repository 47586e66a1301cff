"""Reads an exported page the way a browser's parser does, and says what in it could run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

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
