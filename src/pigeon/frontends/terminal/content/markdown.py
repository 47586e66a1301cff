"""Markdown as lines for the terminal: headings on the left, code as it was written, lists and tables that fit.

Where there are no colours, the marks of markdown that carry meaning stay: those of headings, of code and of quotes.
Code is neither framed nor indented, so that it can be copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from threading import Lock, Thread
from typing import TYPE_CHECKING

from pigeon.frontends.terminal.content.tables import Alignment, table_lines
from pigeon.frontends.terminal.content.wrapping import NARROWEST_TEXT, folded, indented, joined, wrapped

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
# By the beginning of the token's name; the first that fits counts. Only colours that are legible on light and dark.
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
def parser() -> MarkdownIt:
    """The parser of answers: what is usual on code hosting sites, HTML as text."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # It makes its tables of rules when it first needs them, which two threads must not do at the same time.
    made.parse("text")
    return made


def syntax_tree(text: str) -> SyntaxTreeNode:
    """The blocks of a text."""
    from markdown_it.tree import SyntaxTreeNode

    return SyntaxTreeNode(parser().parse(text))


def is_tight(node: SyntaxTreeNode) -> bool:
    """Whether the items of a list stand without blank lines between them."""
    return all(part.hidden for item in node.children for part in item.children if part.type == "paragraph")


def code_of(node: SyntaxTreeNode) -> tuple[str, str]:
    """The code of a block, and its language if one is named."""
    words = node.info.split()
    return node.content.removesuffix("\n"), words[0] if words else ""


def cell_nodes(table: SyntaxTreeNode) -> list[list[SyntaxTreeNode]]:
    """The cells of a table by rows, the header first."""
    return [list(row.children) for part in table.children for row in part.children]


class _Lexers:
    """Those of pygments by the names of languages; none where it knows no such language.

    The first of a kind takes long to make, and is not made in two threads at the same time: its class prepares itself.
    """

    def __init__(self) -> None:
        self._made: dict[str, Lexer | None] = {}
        self._asked: set[str] = set()
        self._making = Lock()

    def of(self, language: str) -> Lexer | None:
        """The lexer of a language."""
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound

        with self._making:
            if language not in self._made:
                try:
                    self._made[language] = get_lexer_by_name(language, stripnl=False)
                except ClassNotFound:
                    self._made[language] = None
            return self._made[language]

    def at_once(self, language: str) -> Lexer | None:
        """The same if it was made before; else it is made in a thread, for the next time."""
        made = self._made.get(language)
        if language not in self._asked:
            self._asked.add(language)
            Thread(target=self.of, args=(language,), daemon=True, name="pigeon-lexer").start()
        return made


_lexers = _Lexers()


@cache
def _code_style(token: object) -> str:
    name = str(token).removeprefix("Token.")
    return next((style for prefix, style in CODE_STYLES if name.startswith(prefix)), "")


class MarkdownLines:
    """Lays out markdown. `signs` are those of the painter; `coloured` says whether styles can be seen.

    With `at_once`, code whose colours take long to prepare is laid out without them until they are.
    """

    def __init__(self, signs: Mapping[str, str], coloured: bool, at_once: bool = False) -> None:
        self._signs = signs
        self._coloured = coloured
        self._lexer = _lexers.at_once if at_once else _lexers.of

    def lines(self, text: str, width: int) -> list[Text]:
        """The lines of a text, none wider than `width`, with one blank line between blocks. The text is clean."""
        return self._blocks(syntax_tree(text).children, width)

    def _blocks(self, nodes: Sequence[SyntaxTreeNode], width: int, tight: bool = False) -> list[Text]:
        from rich.text import Text

        lines: list[Text] = []
        for node in nodes:
            made = self._block(node, width)
            if lines and made and not tight:
                lines.append(Text())
            lines += made
        return lines

    def _block(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        match node.type:
            case "paragraph":
                return wrapped(self._inline(node), min(width, WIDEST_PROSE))
            case "heading":
                return self._heading(node, min(width, WIDEST_PROSE))
            case "bullet_list" | "ordered_list":
                return self._list(node, width)
            case "blockquote":
                return self._quote(node, width)
            case "fence" | "code_block":
                return self._code(node, width)
            case "table":
                return self._table(node, width)
            case "hr":
                return [self._text(self._signs["rule"] * min(width, RULE_CELLS), "faint")]
            case _:
                return wrapped(self._text(node.content.rstrip("\n")), width)

    def _text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(text, style)

    def _heading(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        text = self._inline(node)
        if not self._coloured:
            return wrapped(joined(self._text("#" * int(node.tag[1:]) + " "), text), width)
        text.stylize("bold underline" if node.tag == "h1" else "bold")
        return wrapped(text, width)

    def _list(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        from rich.text import Text

        tight = is_tight(node)
        start = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        last = 0 if start is None else len(str(start + len(node.children) - 1))
        lines: list[Text] = []
        for index, item in enumerate(node.children):
            mark = f"{self._signs['item']} " if start is None else f"{start + index:>{last}}. "
            room = width - len(mark)
            narrow = room < NARROWEST_TEXT
            made = self._blocks(item.children, width if narrow else room, tight) or [Text()]
            if lines and not tight:
                lines.append(Text())
            lines += made if narrow else indented(made, Text(mark))
        return lines

    def _quote(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        mark = self._text(f"{self._signs['bar']} " if self._coloured else "> ", "faint")
        narrow = width - 2 < NARROWEST_TEXT
        lines = self._blocks(node.children, width if narrow else width - 2)
        return lines if narrow else indented(lines, mark, mark)

    def _code(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        code, language = code_of(node)
        if self._coloured:
            return folded(self._highlighted(code, language), width)
        fence = node.markup or "```"
        return folded(self._text(f"{fence}{language}\n{code}\n{fence}"), width)

    def _highlighted(self, code: str, language: str) -> Text:
        lexer = self._lexer(language.lower()) if language and len(code) <= LONGEST_COLOURED else None
        if lexer is None:
            return self._text(code)
        text = self._text("")
        for token, part in lexer.get_tokens(code):
            text.append(part, _code_style(token))
        # Lexers need the last line to be ended.
        return text[: len(code)]

    def _table(self, node: SyntaxTreeNode, width: int) -> list[Text]:
        cells = cell_nodes(node)
        header, *rows = [[self._inline(cell) for cell in row] for row in cells]
        for name in header:
            name.stylize("bold")
        alignments: list[Alignment] = [_alignment(cell) for cell in cells[0]]
        return table_lines(header, rows, alignments, width, self._signs["rule"])

    def _inline(self, node: SyntaxTreeNode) -> Text:
        """The text of a block, styled, with its line breaks."""
        text = self._text("")
        for child in node.children:
            self._append(text, child)
        return text

    def _append(self, text: Text, node: SyntaxTreeNode) -> None:
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
                text.append(f"[image: {node.content or 'without a name'}] ({_address(node, 'src')})", "faint")
            case "link":
                self._link(text, node)
            case _:
                for child in node.children:
                    self._append(text, child)
                text.stylize(INLINE_STYLES.get(node.type, ""), begin)

    def _link(self, text: Text, node: SyntaxTreeNode) -> None:
        begin = len(text)
        for child in node.children:
            self._append(text, child)
        text.stylize("underline", begin)
        address = _address(node, "href")
        if address.removeprefix("mailto:") != text.plain[begin:]:
            text.append(f" ({address})", "faint")


def _address(node: SyntaxTreeNode, name: str) -> str:
    return str(node.attrs.get(name, ""))


def _alignment(cell: SyntaxTreeNode) -> Alignment:
    style = str(cell.attrs.get("style", ""))
    return "right" if "right" in style else "center" if "center" in style else "left"
