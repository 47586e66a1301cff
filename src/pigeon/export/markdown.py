"""Markdown of a model as HTML that holds formatting and links and nothing else.

Two defences stand one behind the other: the renderer has HTML switched off, and its output is cleaned against a list of
allowed tags and attributes. Images become links, so that opening a page causes no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pigeon.export.escaping import escaped, plain

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST = 100_000
DEEPEST = 30
TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}


def markdown_html(text: str) -> str:
    """The text formatted; one that is too long or too deep to be prose is shown as it is."""
    made = _rendered(text) if len(text) <= LONGEST else None
    if made is None:
        return f'<pre class="text">{escaped(text)}</pre>'
    import nh3

    return nh3.clean(
        made,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=_whole_links,
        url_schemes=SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )


def _rendered(text: str) -> str | None:
    """None where the renderer would leave out everything, or what is nested too deep."""
    renderer = _renderer()
    env: dict[str, Any] = {}
    tokens = renderer.parse(plain(text), env)
    if not tokens or any(token.level >= DEEPEST - 1 for token in tokens):
        return None
    return str(renderer.renderer.render(tokens, renderer.options, env))


def _whole_links(tag: str, name: str, value: str) -> str | None:
    """A link into the project's folder leads nowhere from the page, so only its text stays."""
    return None if name == "href" and value.partition(":")[0].lower() not in SCHEMES else value


@cache
def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": DEEPEST})
    made.enable(["table", "strikethrough"])
    made.add_render_rule("image", _picture_as_link)
    return made


def _picture_as_link(self: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    label = f"[picture: {token.content or source}]"
    return f'<a href="{escaped(source)}">{escaped(label)}</a>'
