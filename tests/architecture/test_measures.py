"""What the rules about the source count, on small made-up sources: each offence is found, each exemption is one."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from house_measures import SourceTree


def tree_of(folder: Path, **modules: str) -> SourceTree:
    """A checkout with these modules; `a__b` is `pigeon/a/b.py`."""
    for name, source in modules.items():
        path = folder / "src" / "pigeon" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(dedent(source))
    return SourceTree(folder)


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("class A:\n def f(self, b): b.x = 1", ["b.x"]),
        ("class A:\n def f(self): self.b.x = 1", ["self.b.x"]),
        ("class A:\n def f(self): self.b.x += 1", ["self.b.x"]),
        ("class A:\n def f(self): del self.b.x", ["self.b.x"]),
        ("class A:\n def f(self, b):\n  for b.x in []: pass", ["b.x"]),
        ("def f(b): setattr(b, 'x', 1)", ["setattr(b, 'x', 1)"]),
        ("import os\nos.environ = {}", ["os.environ"]),
        ("def f():\n b = make()\n b.x = 1", ["b.x"]),
        ("class A:\n def f(self): self.x = 1", []),
        ("class A:\n def f(self, other: A): other.x = 1", []),
        ("def f():\n b = B()\n b.x = 1", []),
        ("class _State:\n def __init__(self): self.x = 0\ndef f(state): state.x = 1", []),
        ("@dataclass\nclass State:\n x: int = 0\ndef f(state): state.x = 1", []),
        ("class State(Struct):\n x: int = 0\ndef f(state): state.x = 1", []),
        ("class State:\n x: int = 0\ndef f(state): state.x = 1", ["state.x"]),
        ("def f(b): b['x'] = 1", []),
    ],
)
def test_an_attribute_that_is_set_from_outside_is_found(tmp_path: Path, source: str, targets: list[str]) -> None:
    assert [one.target for one in tree_of(tmp_path, a__b=source).foreign_assignments()] == targets


@pytest.mark.parametrize(
    ("kinds", "asked"),
    [("NoHooks", 1), ("(int, _NoHooks)", 1), ("int | NullGate", 1), ("Notice", 0), ("Hooks", 0), ("Nobody", 0)],
)
def test_asking_for_the_type_of_a_null_object_is_found(tmp_path: Path, kinds: str, asked: int) -> None:
    assert len(tree_of(tmp_path, a__b=f"isinstance(x, {kinds})").null_objects_asked()) == asked


def test_a_class_name_counts_twice_except_where_extensions_mirror_the_wire(tmp_path: Path) -> None:
    one = "class A: ...\nclass B: ..."
    tree = tree_of(tmp_path, wire__x=one, session__y="class A: ...", extensions__public__z=one)
    assert tree.repeated_classes() == {"A": ["pigeon.session.y", "pigeon.wire.x"]}


def test_a_module_for_one_neighbour_is_found_by_its_package(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        a__one="",
        a__two="from pigeon.a import one\nfrom pigeon.a import three",
        a__three="",
        b__four="def f():\n    from pigeon.a.three import x",
        b__five="",
        a__six="from pigeon.b import five",
    )
    assert tree.single_importers() == {"pigeon.a.one": "pigeon.a.two"}


def test_a_name_that_nothing_uses_is_found(tmp_path: Path) -> None:
    source = """
    from pigeon.a.kinds import LIMIT
    def used(): return LIMIT
    def recursive(): recursive()
    def _private(): ...
    @handles(int)
    def registered(): ...
    @cache
    def cached(): ...
    NAMED = 1
    """
    user = "from pigeon.a import names\nnames.used()\n_lazy = 'pigeon.a.names:NAMED'"
    tree = tree_of(tmp_path, a__names=source, a__kinds="LIMIT = 1\nOTHER = 2", b__user=user)
    assert tree.unused_names() == ["pigeon.a.kinds.OTHER", "pigeon.a.names.recursive", "pigeon.a.names.cached"]


def test_a_method_that_nothing_mentions_is_found(tmp_path: Path) -> None:
    source = "class A:\n def used(self): self.used()\n def idle(self): ...\n def _own(self): ...\n"
    assert tree_of(tmp_path, a__b=source).unused_methods() == ["pigeon.a.b.A.idle"]


def test_files_that_words_name_are_looked_for(tmp_path: Path) -> None:
    source = '"""See `a/b`, `b.py`, `a/gone.py`, `gone.py` and `provider/id`."""\n# `a/gone` and `docs/page.md`\n'
    stale = ["pigeon.a.b: a/gone", "pigeon.a.b: a/gone.py", "pigeon.a.b: gone.py"]
    assert tree_of(tmp_path, a__b=source).stale_paths() == stale


def test_modules_that_import_each_other_are_a_cycle_only_while_they_are_imported(tmp_path: Path) -> None:
    late = "def f():\n    from pigeon.a import one"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pigeon.a import one"
    tree = tree_of(tmp_path, a__one="import pigeon.a.two, pigeon.a.late, pigeon.a.typed", a__late=late, a__typed=typed)
    assert tree_of(tmp_path, a__two="").cycles() == []
    assert tree_of(tmp_path, a__two="from pigeon.a import one").cycles() == [["pigeon.a.one", "pigeon.a.two"]]
    assert tree.imports("pigeon.a.late") == tree.imports("pigeon.a.typed") == ["pigeon.a.one"]


def test_comments_are_counted_without_directives(tmp_path: Path) -> None:
    assert tree_of(tmp_path, a__b="x = 1  # noqa: E1\n# why\ny = 1  # type: ignore\nz = '# no'\n").comments() == 1


def test_the_attributes_of_a_class_are_those_that_its_code_sets(tmp_path: Path) -> None:
    source = """
    class Large:
        def __init__(self):
            self.a = self.b = 1
            self.c, self.d = 1, 2
            self.a += 1
            other.e = 1

        def set(self):
            self.f: int = 1
    """
    assert dict(tree_of(tmp_path, one=source).attributes()) == {"pigeon.one.Large": 5}
    many = "\n".join(f"  self.a{number} = 1" for number in range(16))
    assert tree_of(tmp_path, two=f"class Huge:\n def __init__(self):\n{many}").large_objects() == {
        "pigeon.two.Huge": 16
    }
