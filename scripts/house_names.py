"""Which function names are riddles, and which docstrings are fillers.

A riddle is one bare participle (`shown`, `_told`): it may be a query, a callback, a conversion or a command. So is an
everyday verb on its own or with a small word (`take`, `take_back`). A filler is a docstring that is too short to add
anything to the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house_measures import SourceTree

SHORTEST_DOCSTRING = 28

_EVERYDAY_VERBS = "take tell say hear look let stand part mend"
_SMALL_WORDS = (
    "about after again all along apart around as aside at away back by down first for from go here in into it last"
    " more next no now of off on once one out over so that them there this through to up what with yes"
)
_IRREGULAR_PARTICIPLES = (
    "awoken beaten begun bent bidden bitten blown born bought bound bred broken brought built caught chosen dealt done"
    " drawn driven drunk eaten fallen fed felt fled flown forgotten found frozen given gone got gotten grown heard held"
    " hidden hung kept known laid led left lent lost made meant met paid parted proven ridden risen rung said seen sent"
    " shaken shown shut slept sold sought spent spoken spun stolen stood struck stuck sung sunk swept sworn swum taken"
    " taught thought thrown told torn understood upheld withheld woken won worn woven written"
)
_NO_PARTICIPLES = "embed exceed feed need proceed seed shed speed succeed"

_EVERYDAY, _SMALL, _PARTICIPLES, _OTHER_ENDINGS = (
    frozenset(words.split()) for words in (_EVERYDAY_VERBS, _SMALL_WORDS, _IRREGULAR_PARTICIPLES, _NO_PARTICIPLES)
)


def is_riddle(name: str) -> bool:
    """Whether a function's name leaves open what the function does."""
    if name.startswith("__"):
        return False
    first, *others = name.strip("_").split("_")
    if first in _EVERYDAY and all(word in _SMALL for word in others):
        return True
    is_participle = first in _PARTICIPLES or (first.endswith("ed") and first not in _OTHER_ENDINGS)
    return not others and is_participle


def riddles(tree: SourceTree) -> list[str]:
    """All functions whose name is a riddle, as `module.name`."""
    return [f"{module}.{node.name}" for module, node in _functions(tree) if is_riddle(node.name)]


def share_of_riddles(tree: SourceTree) -> float:
    """The riddles among all functions, in percent."""
    return 100 * len(riddles(tree)) / sum(1 for _ in _functions(tree))


def short_docstrings(tree: SourceTree) -> list[str]:
    """All docstrings that are too short to inform, as `module: docstring`."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{module}: {text}"
        for module in tree.modules
        for node in ast.walk(tree.tree(module))
        if isinstance(node, documented)
        and (text := ast.get_docstring(node)) is not None
        and len(text) < SHORTEST_DOCSTRING
    ]


def _functions(tree: SourceTree) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in tree.modules:
        for node in ast.walk(tree.tree(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield module, node
