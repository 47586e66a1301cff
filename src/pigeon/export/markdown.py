"""Texts as HTML that holds formatting, coloured code and links, and nothing else.

There are two lines of defence: the renderer has HTML switched off, and its output is cleaned against a list of allowed
tags and attributes. Images become links, so that opening a page causes no request.

`TextFormatter` also bounds what one page costs: formatting takes a hundred times as long as copying, and a session may
have tens of thousands of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pigeon.export.escaping import escape_html, to_plain_text
from pigeon.export.highlight import TOKEN_CLASSES, find_language, highlight_code
from pigeon.export.terminal import terminal_html
from pigeon.system.extras import find_missing_module

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST = 100_000
DEEPEST = 30
# How many characters of one page are formatted or coloured: one or two seconds' work each.
MOST_PROSE = 1_500_000
MOST_CODE = 500_000
TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"a": {"href", "title"}, "code": {"data-language"}, "ol": {"start"}, "span": {"class"}}
SCHEMES = {"http", "https", "mailto"}
# The allowed form of a code block's language.
_LANGUAGE_NAME = r"[A-Za-z][\w.+#-]{0,23}"
# A text without any of these is not changed by markdown, except for its paragraphs. Blanks other than space and line
# feed count as such for Python, and not always for markdown.
_MARKUP = re.compile(r"[*_`\[\]<>#|~\\&]|[^\S \n\t]|^[ \t]*(?:[-+=>]|\d{1,9}[.)])|^ {0,3}(?: |\t)|[ \\]$", re.MULTILINE)


class TextFormatter:
    """Prose, code and command output as HTML; one for each page, or for each conversation that is shown live."""

    def __init__(
        self, mask: Callable[[str], str] = str, most_prose: int = MOST_PROSE, most_code: int = MOST_CODE
    ) -> None:
        """`mask` masks keys in output whose colours may hide them; all other texts are masked already."""
        self._mask = mask
        self._prose_left = most_prose
        self._code_left = most_code
        self.left_plain = 0
        """How many texts were shown as they are, because the page had cost enough."""
        self.missing = find_missing_module("pages")
        """A module without which texts that need formatting or colours are shown as they are; None if all are there."""

    def format_prose(self, text: str, keep_lines: bool = False) -> str:
        """Format Markdown as HTML; with `keep_lines` each line stays one, as people expect of their own input."""
        text = to_plain_text(text)
        if _MARKUP.search(text) is None and text.strip():
            return _paragraphs_html(text, keep_lines)
        made = None
        if len(text) <= LONGEST and self.missing is None:
            if self._prose_left < len(text):
                self.left_plain += 1
            else:
                self._prose_left -= len(text)
                made = _render_markdown(text, keep_lines, self)
        return f'<pre class="text">{escape_html(text)}</pre>' if made is None else _sanitize_html(made)

    def format_code(self, text: str, language: str) -> str:
        """Returns the inside of a `pre`: the text, coloured if the language is known and the budget allows it."""
        if language and not self.try_spend_budget(len(text)):
            self.left_plain += 1
            language = ""
        made = highlight_code(text, language) if language and self.missing is None else None
        return escape_html(text) if made is None else made

    def try_spend_budget(self, characters: int) -> bool:
        """Whether so many characters of code may still be coloured or compared; if so, they are counted."""
        if self._code_left < characters:
            return False
        self._code_left -= characters
        return True

    def format_output(self, text: str) -> str:
        """The inside of a `pre` for the output of a command."""
        return terminal_html(text, self._mask)


def _paragraphs_html(text: str, keep_lines: bool) -> str:
    parts = (part.strip() for part in re.split(r"\n[ \t]*\n", text))
    end = "<br>\n" if keep_lines else "\n"
    return "".join(
        f"<p>{end.join(escape_html(line.strip()) for line in part.split(chr(10)))}</p>\n" for part in parts if part
    )


def _sanitize_html(made: str) -> str:
    import nh3

    return nh3.clean(
        made,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=_filter_attribute,
        url_schemes=SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )


def _render_markdown(text: str, keep_lines: bool, formatter: TextFormatter) -> str | None:
    """The HTML, or None if the renderer would leave out everything, or if the text is nested too deep."""
    renderer = _make_renderer(keep_lines)
    env: dict[str, Any] = {"formatter": formatter}
    tokens = renderer.parse(text, env)
    if not tokens or any(token.level >= DEEPEST - 1 for token in tokens):
        return None
    return str(renderer.renderer.render(tokens, renderer.options, env))


def _filter_attribute(tag: str, name: str, value: str) -> str | None:
    """A link into the project's folder leads nowhere from the page, so only its text is kept."""
    if name == "href":
        return value if value.partition(":")[0].lower() in SCHEMES else None
    if name == "data-language":
        return value if re.fullmatch(_LANGUAGE_NAME, value) else None
    if name == "class":
        return value if value in TOKEN_CLASSES else None
    return value


@cache
def _make_renderer(keep_lines: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": keep_lines, "maxNesting": DEEPEST})
    made.enable(["table", "strikethrough"])
    made.add_render_rule("image", _render_picture_as_link)
    made.add_render_rule("fence", _render_coloured_fence)
    made.add_render_rule("heading_open", _render_heading)
    made.add_render_rule("heading_close", _render_heading)
    return made


def _render_picture_as_link(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    label = f"[picture: {token.content or source}]"
    return f'<a href="{escape_html(source)}">{escape_html(label)}</a>'


def _render_coloured_fence(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    formatter: TextFormatter = env["formatter"]
    called = (token.info.split() or [""])[0]
    label = f' data-language="{escape_html(called)}"' if re.fullmatch(_LANGUAGE_NAME, called) else ""
    return f"<pre><code{label}>{formatter.format_code(token.content, find_language(called))}</code></pre>\n"


def _render_heading(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """Two levels lower: the title of the page is its h1, and each entry of the conversation has an h2."""
    token = tokens[index]
    name = f"h{min(6, int(token.tag[1]) + 2)}"
    return f"<{name}>" if token.nesting > 0 else f"</{name}>\n"
