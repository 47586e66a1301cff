"""An event is declared once: its exports, its names and the check of its results follow, and one place sends it."""

from __future__ import annotations

import ast
from collections import Counter

import pigeon.extensions
from pigeon.extensions.public import events, results
from pigeon.extensions.public.api import Extension
from support.source_tree import ROOT

PACKAGE = ROOT / "src" / "pigeon" / "extensions"
CONTEXTS = {"Context", "CommandContext", "ToolContext"}
OTHERS = {"Event", "Extension", "Flag", "Call", "ModelRequest", "Think", *CONTEXTS}


def test_every_event_and_every_result_is_exported() -> None:
    exported = set(pigeon.extensions.__all__)
    assert {kind.__name__ for kind in events.ALL} <= exported
    assert {result.__name__ for kind in events.ALL for result in kind.returns} <= exported
    assert exported >= OTHERS
    assert all(isinstance(getattr(pigeon.extensions, name), type) for name in exported)


def test_nothing_is_exported_that_authors_do_not_use() -> None:
    others = set(pigeon.extensions.__all__) - {kind.__name__ for kind in events.ALL} - set(vars(results))
    assert others == OTHERS


def test_an_event_is_known_by_its_class_and_by_each_of_its_names() -> None:
    extension = Extension("all")
    for kind in events.ALL:
        for asked in (kind, kind.name, *kind.aliases):
            extension.on(asked)(print)
    assert {handler.event for handler in extension.registered.handlers} == set(events.ALL)


def test_every_event_is_sent_from_one_place() -> None:
    made = Counter(
        _called_name(node)
        for place in ("adapters/hooks.py", "adapters/gate.py", "adapters/event_forwarding.py", "runner.py")
        for node in ast.walk(ast.parse((PACKAGE / place).read_text("utf-8")))
        if isinstance(node, ast.Call)
    )
    # An answer is asked about before it is put on record; other messages are told of afterwards.
    places = {kind.__name__: 2 if kind is events.MessageEnd else 1 for kind in events.ALL}
    assert {name: made[name] for name in places} == places


def _called_name(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
