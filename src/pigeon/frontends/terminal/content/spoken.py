"""Markdown and changes in words, for people who hear the chat or read it in braille.

No meaning depends on position or on drawn signs: code is announced and ended, the cells of a table name their columns,
and a change tells which lines were added and removed. Lines are not wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pigeon.frontends.cleaning import clean_text
from pigeon.frontends.terminal.content.markdown import cell_nodes, code_of, parse_markdown

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

_CHANGED = re.compile(r"([+-]) *(\d+) ?(.*)")
MOST_CHANGES = 40


def spoken_markdown(text: str) -> list[str]:
    """The lines of a text, in words."""
    return _block_list_lines(parse_markdown(clean_text(text)).children)


def spoken_diff(diff: str, most: int = MOST_CHANGES) -> list[str]:
    """What a change removes and adds, line by line, without the surrounding lines."""
    found = [match for line in clean_text(diff).split("\n") if (match := _CHANGED.fullmatch(line))]
    lines = [
        f"{'Added' if one[1] == '+' else 'Removed'} line {one[2]}: {one[3].strip() or 'blank'}" for one in found[:most]
    ]
    return [*lines, f"And {len(found) - most:,} more changed lines."] if len(found) > most else lines


def _block_list_lines(nodes: Sequence[SyntaxTreeNode]) -> list[str]:
    return [line for node in nodes for line in _block_lines(node)]


def _block_lines(node: SyntaxTreeNode) -> list[str]:
    match node.type:
        case "paragraph":
            return _inline_line(node).split("\n")
        case "heading":
            return [f"Heading: {_inline_line(node)}"]
        case "bullet_list" | "ordered_list":
            return _list_lines(node)
        case "blockquote":
            return ["Quote:", *_block_list_lines(node.children), "End of quote."]
        case "fence" | "code_block":
            code, language = code_of(node)
            return [f"Code{', ' + language if language else ''}:", *code.split("\n"), "End of code."]
        case "table":
            return _table_lines(node)
        case "hr":
            return []
        case _:
            return [node.content.rstrip("\n")]


def _list_lines(node: SyntaxTreeNode) -> list[str]:
    start = int(node.attrs.get("start", 1))
    lines: list[str] = []
    for number, item in enumerate(node.children, start):
        first, *rest = _block_list_lines(item.children) or [""]
        # A full stop after the number, otherwise a dash: screen readers pause at both and name neither.
        lines += [f"{number}. {first}" if node.type == "ordered_list" else f"- {first}", *rest]
    return lines


def _table_lines(node: SyntaxTreeNode) -> list[str]:
    header, *rows = [[_inline_line(cell) for cell in row] for row in cell_nodes(node)]
    lines = [f"Table with {len(rows)} row{'' if len(rows) == 1 else 's'}:"]
    named = len(header) > 2 or all(header)
    for row in rows:
        cells = [f"{name}: {cell}" if named and name else cell for name, cell in zip(header, row, strict=True) if cell]
        # A table of two columns without names is a list of words and their meanings.
        lines.append("; ".join(cells) if named else ": ".join(cells))
    return [*lines, "End of table."]


def _inline_line(node: SyntaxTreeNode) -> str:
    return "".join(_inline_text(child) for child in node.children)


def _inline_text(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text" | "code_inline":
            return node.content
        case "softbreak":
            return " "
        case "hardbreak":
            return "\n"
        case "image":
            return f"image {node.content}".rstrip()
        case "link":
            name, address = _inline_line(node), str(node.attrs.get("href", ""))
            return name if name == address.removeprefix("mailto:") else f"{name} ({address})"
        case _:
            return _inline_line(node)
