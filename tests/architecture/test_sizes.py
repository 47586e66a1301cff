"""Alarms, not goals: where a file, function, class or folder has grown so large that somebody should look at it.

Never bend code to satisfy one of these figures. An exception is one line with its reason.
"""

from __future__ import annotations

from support.source_tree import ROOT, TREE, hold

FILE_LINES = 800
FUNCTION_LINES = 60
PUBLIC_METHODS = 25
FOLDER_MODULES = 20
MOST_LARGE_OBJECTS = 4

# One line per deliberate exception, with its reason.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
WIDE_CLASSES: dict[str, str] = {}
FULL_FOLDERS: dict[str, str] = {
    "pigeon/session": "what runs beside a conversation, and whether it plans, are parts of it",
}
# At most MOST_LARGE_OBJECTS of them, however good the reasons are.
LARGE_OBJECTS: dict[str, str] = {
    "pigeon.tools.agent_tools.AgentTools": "holds what tools are made from until they are made for another folder",
    "pigeon.permissions.control.AgentPermissions": "rules and modes of all sources, and what was allowed",
    "pigeon.app.build._Builder": "what all parts of an agent share while it is built, and nothing afterwards",
    "pigeon.resources.resources.Resources": "options, folders and everything that was read, of one project at a time",
}


def test_a_file_is_short_enough() -> None:
    hold([module for module in TREE.modules if TREE.lines(module) > FILE_LINES], LONG_FILES)


def test_a_test_file_is_short_enough() -> None:
    lengths = {path.name: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert not {name: lines for name, lines in lengths.items() if lines > FILE_LINES}


def test_a_function_is_short_enough() -> None:
    hold([name for name, lines in TREE.functions() if lines > FUNCTION_LINES], LONG_FUNCTIONS)


def test_a_class_has_few_enough_public_methods() -> None:
    hold([name for name, methods in TREE.public_methods() if methods > PUBLIC_METHODS], WIDE_CLASSES)


def test_a_class_has_few_enough_attributes() -> None:
    hold(TREE.large_objects(), LARGE_OBJECTS)
    assert len(LARGE_OBJECTS) <= MOST_LARGE_OBJECTS


def test_a_folder_has_few_enough_modules() -> None:
    full = [folder for folder, modules in TREE.folders().items() if modules > FOLDER_MODULES]
    hold(full, FULL_FOLDERS)
