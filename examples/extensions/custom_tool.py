"""A tool from a function: its schema comes from the type hints, its description from the docstring.

pigeon --mode rpc --extension examples/extensions/custom_tool.py
"""

from __future__ import annotations

import asyncio
import collections
import re
from pathlib import Path
from typing import Annotated

from pigeon.extensions import Extension, ToolContext, ToolOutput

ext = Extension("word-count", needs=[])


@ext.tool(reads_only=True, snippet="Count the words of a file")
async def word_count(
    ctx: ToolContext, path: Annotated[str, "the file"], top: Annotated[int, "how many words to list"] = 3
) -> ToolOutput:
    """Count the words of a text file and list the most frequent ones."""
    await ctx.update(f"Reading {path}")
    file = Path(ctx.cwd, path)
    text = await asyncio.to_thread(file.read_text, "utf-8", "replace")
    words = re.findall(r"\w+", text.lower())
    common = collections.Counter(words).most_common(top)
    listed = ", ".join(f"{word} ({count})" for word, count in common)
    return ToolOutput(f"{len(words)} words. Most frequent: {listed or 'none'}", details={"words": len(words)})
