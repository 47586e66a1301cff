"""A small project with files that are ignored, hidden and nested."""

from __future__ import annotations

from pathlib import Path


def make_project(folder: Path) -> Path:
    for name, content in {
        "README.md": "# Project\nuse foo\n",
        "src/a.py": "import foo\n\ndef bar():\n    return foo.Foo()\n",
        "src/deep/b.py": "foo = 1\n",
        "src/deep/c.ts": "const foo = 2;\n",
        "build/out.py": "foo\n",
        ".hidden/x.py": "foo\n",
        ".git/config": "foo\n",
        "secret.log": "foo\n",
        ".gitignore": "build/\n*.log\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder
