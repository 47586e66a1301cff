"""How large files, functions, classes and folders may get, and how small a module may be."""

from __future__ import annotations

from fakes.source_tree import ROOT, TREE, hold

FILE_LINES = 600
FUNCTION_LINES = 60
PUBLIC_METHODS = 20
FOLDER_MODULES = 15

# One line per deliberate exception, with its reason.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
WIDE_CLASSES: dict[str, str] = {
    "pigeon.session.queue.MessageQueue": "the methods of `Feed` that the loop asks, and what commands ask for",
    "pigeon.session.engine.Engine": "the methods of `RunOwner` that the loop asks, and what commands ask for",
    "pigeon.sdk.commands.CommandMethods": "a method for each command, generated",
    "pigeon.sdk.sync_commands.SyncCommandMethods": "a method for each command, generated",
}
FULL_FOLDERS: dict[str, str] = {}
SMALL_MODULES: dict[str, str] = {}
# What a registry lists may be small: each entry stands apart so that it is found.
REGISTRIES = {
    "pigeon.rpc.handlers.all": "a module per group of commands",
    "pigeon.dialects.choice": "a module per dialect",
    "pigeon.cli.running": "a module per mode",
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


def test_a_folder_has_few_enough_modules() -> None:
    full = [folder for folder, modules in TREE.folders().items() if modules > FOLDER_MODULES]
    hold(full, FULL_FOLDERS)


def test_a_small_module_is_not_there_for_one_neighbour() -> None:
    small = [module for module, importer in TREE.small_fragments().items() if importer not in REGISTRIES]
    hold(small, SMALL_MODULES)


def test_a_registry_that_may_list_small_modules_does_so() -> None:
    assert set(REGISTRIES) <= set(TREE.small_fragments().values())
