"""The wheel stays small: an archive of what setuptools packs, with its list of files, and without notes to authors."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import runpy
import tomllib
import zipfile
from pathlib import Path
from textwrap import dedent

from fakes.source_tree import ROOT, TREE

PACKAGE = ROOT / "src" / "pigeon"
# A mebibyte, and a tenth of one for the report of batches.
MOST = 1_153_434
PACKING = runpy.run_path(str(ROOT / "setup.py"))
described = PACKING["described"]


def packed_files() -> list[Path]:
    """What setuptools puts into the wheel; `docs` is a link, which it follows."""
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    patterns = configured["package-data"]["pigeon"]
    return sorted({path for pattern in ("**/*.py", *patterns) for path in PACKAGE.glob(pattern)})


def packed(path: Path) -> bytes:
    """A file as it is in the wheel."""
    name, data = path.relative_to(PACKAGE).as_posix(), path.read_bytes()
    return PACKING["packed"](name, data.decode()).encode() if path.suffix == ".py" else data


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in described(tree):
        is_alone = len(node.body) == 1 and not isinstance(node, ast.Module)
        node.body[:1] = [ast.Pass()] if is_alone else []
    return tree


def test_an_installed_module_is_the_same_program_with_the_same_lines() -> None:
    for module, path in TREE.modules.items():
        source, installed = TREE.text(module), packed(path).decode()
        assert installed.count("\n") == source.count("\n"), module
        both = [ast.dump(without_docstrings(ast.parse(text))) for text in (source, installed)]
        assert both[0] == both[1], module


def test_nothing_but_the_notes_goes() -> None:
    source = '''
        class A(Exception):
            """A."""

        def _f() -> str:  # why
            """One.

            Two.
            """
            return "# no"
    '''
    code = ["class A(Exception):", "    pass", "def _f() -> str:", '    return "# no"']
    for name, says in (("agent/run.py", "    pass"), ("sdk/agent.py", '    """A."""')):
        left = PACKING["packed"](name, dedent(source)).split("\n")
        assert [line for line in left if line.strip()] == [code[0], says, *code[2:]]


def test_what_users_and_the_schema_read_is_kept() -> None:
    read = ("pigeon.sdk", "pigeon.extensions.public", "pigeon.wire", "pigeon.testing")
    for module in ["pigeon", "pigeon.extensions", *(name for name in TREE.modules if name.startswith(read))]:
        before, after = (
            {getattr(node, "name", ""): ast.get_docstring(node) for node in described(ast.parse(text))}
            for text in (TREE.text(module), packed(TREE.modules[module]).decode())
        )
        private = {name for name in before if name.startswith("_") and not name.endswith("__")}
        assert after == {name: text for name, text in before.items() if name not in private}, module


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def test_the_wheel_is_small_with_every_door_in_it() -> None:
    files = packed_files()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        rows = []
        for path in files:
            name = path.relative_to(PACKAGE.parent).as_posix()
            data = packed(path)
            wheel.writestr(name, data)
            rows.append(f"{name},sha256={_digest(data)},{len(data)}")
        wheel.writestr("pigeon.dist-info/RECORD", "\n".join(rows))
        wheel.writestr("pigeon.dist-info/METADATA", (ROOT / "README.md").read_bytes())
    size = len(archive.getvalue())
    assert len(files) > 300
    assert PACKAGE / "docs" / "extensions.md" in files
    assert size < MOST, f"the wheel would have {size:,} bytes"
