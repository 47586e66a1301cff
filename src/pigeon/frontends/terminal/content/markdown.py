"""Markdown as lines for the terminal: headings on the left, code as written, lists and tables that fit.

Without colours, the marks of markdown that carry meaning are kept: those of headings, code and quotes. Code is neither
framed nor indented, so that it can be copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from threading import Lock, Thread
from typing import TYPE_CHECKING

from pigeon.frontends.terminal.content.tables import Alignment, table_lines
from pigeon.frontends.terminal.content.wrapping import NARROWEST_TEXT, fold_lines, indent_lines, join_texts, wrap_words

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode
    from pygments.lexer import Lexer
    from rich.text import Text

# Longer lines than this are hard to read, however wide the terminal is.
WIDEST_PROSE = 110
# Longer code is shown without colours: they would take too long.
LONGEST_COLOURED = 50_000
RULE_CELLS = 20
# By the beginning of a token's name; the first match counts. Only colours that are legible on light and dark.
CODE_STYLES = (
    ("Comment.Preproc", "magenta"),
    ("Comment", "dim"),
    ("Keyword.Constant", "cyan"),
    ("Keyword.Type", "cyan"),
    ("Keyword", "magenta"),
    ("Operator.Word", "magenta"),
    ("Name.Decorator", "magenta"),
    ("Name.Function", "bold"),
    ("Name.Class", "bold"),
    ("Name.Tag", "magenta"),
    ("Name.Builtin", "cyan"),
    ("Literal.String", "green"),
    ("Literal.Number", "cyan"),
    ("Generic.Deleted", "red"),
    ("Generic.Inserted", "green"),
    ("Generic.Heading", "bold"),
    ("Generic.Subheading", "cyan"),
)
INLINE_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}


@cache
def make_parser() -> MarkdownIt:
    """The parser of answers: the usual extensions of code hosting sites, with HTML as text."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # Parsing makes the tables of rules, which two threads must not do at the same time.
    made.parse("text")
    return made


def parse_markdown(text: str) -> SyntaxTreeNode:
    from markdown_it.tree import SyntaxTreeNode

    return SyntaxTreeNode(make_parser().parse(text))


def is_tight(node: SyntaxTreeNode) -> bool:
    """True if there are no blank lines between the items of a list."""
    return all(part.hidden for item in node.children for part in item.children if part.type == "paragraph")


def code_of(node: SyntaxTreeNode) -> tuple[str, str]:
    """The code of a block, and its language if one is named."""
    words = node.info.split()
    return node.content.removesuffix("\n"), words[0] if words else ""


def cell_nodes(table: SyntaxTreeNode) -> list[list[SyntaxTreeNode]]:
    """The cells of a table by rows, the header first."""
    return [list(row.children) for part in table.children for row in part.children]


class _Lexers:
    """The lexers of pygments by language name; None for a language that it does not know.

    The first lexer of a class takes long to make, and must not be made in two threads at once, because the class
    prepares itself.
    """

    def __init__(self) -> None:
        self._made: dict[str, Lexer | None] = {}
        self._asked: set[str] = set()
        self._making = Lock()

    def load_lexer(self, language: str) -> Lexer | None:
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound

        with self._making:
            if language not in self._made:
                try:
                    self._made[language] = get_lexer_by_name(language, stripnl=False)
                except ClassNotFound:
                    self._made[language] = None
            return self._made[language]

    def find_or_prepare_lexer(self, language: str) -> Lexer | None:
        """The lexer if it was made before; otherwise None, and it is made in a thread for the next time."""
        made = self._made.get(language)
        if language not in self._asked:
            self._asked.add(language)
            Thread(target=self.load_lexer, args=(language,), daemon=True, name="pigeon-lexer").start()
        return made


_lexers = _Lexers()


@cache
def _code_style(token: object) -> str:
    name = str(token).removeprefix("Token.")
    return next((style for prefix, style in CODE_STYLES if name.startswith(prefix)), "")


class MarkdownLines:
    """Lays out markdown. `signs` are those of the painter; `coloured` tells whether styles are visible.

    With `at_once`, code whose colours take long to prepare is laid out without them until they are ready.
    """

    def __init__(self, signs: Mapping[str, str], coloured: bool, at_once: bool = False) -> None:
        self._signs = signs
        self._coloured = coloured
        self._lexer = _lexers.find_or_prepare_lexer if at_once else _lexers.load_lexer

    def render_lines(self, text: str, width: int) -> list[Text]:
        """The lines of a text, none wider than `width`, with one blank line between blocks. The text must be clean."""
        return self._block_list_lines(parse_markdown(text).children, width)

    def _block_list_lines(self, nodes: Sequence[SyntaxTreeNode], width: int, tight: bool = False) -> list[Text]:
        from rich.text import Text

        lines: list[Text] = []
        for node in nodes:
            made = self._block_lines(node, width)
            if lines and made and not tight:
                lines.append(Text())
            lines += made
        return lines

    def _block_lines(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        match node.type:
            case "paragraph":
                return wrap_words(self._inline_text(node), min(width, WIDEST_PROSE))
            case "heading":
                return self._heading_lines(node, min(width, WIDEST_PROSE))
            case "bullet_list" | "ordered_list":
                return self._list_lines(node, width)
            case "blockquote":
                return self._quote_lines(node, width)
            case "fence" | "code_block":
                return self._code_lines(node, width)
            case "table":
                return self._table_lines(node, width)
            case "hr":
                return [self._make_text(self._signs["rule"] * min(width, RULE_CELLS), "faint")]
            case _:
                return wrap_words(self._make_text(node.content.rstrip("\n")), width)

    def _make_text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(text, style)

    def _heading_lines(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        text = self._inline_text(node)
        if not self._coloured:
            return wrap_words(join_texts(self._make_text("#" * int(node.tag[1:]) + " "), text), width)
        text.stylize("bold underline" if node.tag == "h1" else "bold")
        return wrap_words(text, width)

    def _list_lines(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        from rich.text import Text

        tight = is_tight(node)
        start = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        last = 0 if start is None else len(str(start + len(node.children) - 1))
        lines: list[Text] = []
        for index, item in enumerate(node.children):
            mark = f"{self._signs['item']} " if start is None else f"{start + index:>{last}}. "
            room = width - len(mark)
            narrow = room < NARROWEST_TEXT
            made = self._block_list_lines(item.children, width if narrow else room, tight) or [Text()]
            if lines and not tight:
                lines.append(Text())
            lines += made if narrow else indent_lines(made, Text(mark))
        return lines

    def _quote_lines(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        mark = self._make_text(f"{self._signs['bar']} " if self._coloured else "> ", "faint")
        narrow = width - 2 < NARROWEST_TEXT
        lines = self._block_list_lines(node.children, width if narrow else width - 2)
        return lines if narrow else indent_lines(lines, mark, mark)

    def _code_lines(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        code, language = code_of(node)
        if self._coloured:
            return fold_lines(self._highlight_code(code, language), width)
        fence = node.markup or "```"
        return fold_lines(self._make_text(f"{fence}{language}\n{code}\n{fence}"), width)

    def _highlight_code(self, code: str, language: str) -> Text:
        lexer = self._lexer(language.lower()) if language and len(code) <= LONGEST_COLOURED else None
        if lexer is None:
            return self._make_text(code)
        text = self._make_text("")
        for token, part in lexer.get_tokens(code):
            text.append(part, _code_style(token))
        # Lexers need the last line to be terminated.
        return text[: len(code)]

    def _table_lines(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        cells = cell_nodes(node)
        header, *rows = [[self._inline_text(cell) for cell in row] for row in cells]
        for name in header:
            name.stylize("bold")
        alignments: list[Alignment] = [_alignment_of(cell) for cell in cells[0]]
        return table_lines(header, rows, alignments, width, self._signs["rule"])

    def _inline_text(self, node: SyntaxTreeNode) -> Text:
        """The text of a block, styled, with its line breaks."""
        text = self._make_text("")
        for child in node.children:
            self._append_node(text, child)
        return text

    def _append_node(self, text: Text, node: SyntaxTreeNode) -> None:
        begin = len(text)
        match node.type:
            case "text":
                text.append(node.content)
            case "softbreak":
                text.append(" ")
            case "hardbreak":
                text.append("\n")
            case "code_inline":
                content = " ".join(node.content.split("\n"))
                text.append(content if self._coloured else f"`{content}`", "code")
            case "image":
                text.append(f"[image: {node.content or 'without a name'}] ({_address_of(node, 'src')})", "faint")
            case "link":
                self._append_link(text, node)
            case _:
                for child in node.children:
                    self._append_node(text, child)
                text.stylize(INLINE_STYLES.get(node.type, ""), begin)

    def _append_link(self, text: Text, node: SyntaxTreeNode) -> None:
        begin = len(text)
        for child in node.children:
            self._append_node(text, child)
        text.stylize("underline", begin)
        address = _address_of(node, "href")
        if address.removeprefix("mailto:") != text.plain[begin:]:
            text.append(f" ({address})", "faint")


def _address_of(node: SyntaxTreeNode, name: str) -> str:
    return str(node.attrs.get(name, ""))


def _alignment_of(cell: SyntaxTreeNode) -> Alignment:
    style = str(cell.attrs.get("style", ""))
    return "right" if "right" in style else "center" if "center" in style else "left"
