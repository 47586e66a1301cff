"""read: the text of a file, or an image; the first bytes of the file decide which."""

from __future__ import annotations

import errno
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from pigeon.agent.interfaces import PathSubject, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.system.files import error_text
from pigeon.system.paths import PathResolver
from pigeon.system.shell.truncation import MAX_BYTES, MAX_LINES, Shown, human_size, truncate_to_head
from pigeon.tools.base import BaseTool, ToolParts, held_path, hold_path_subject, make_text_outcome, parse_whole_number
from pigeon.tools.file_access import FileAccess
from pigeon.wire.base import Json
from pigeon.wire.content import ImageContent, TextContent, UserBlock
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.workspaces.line_reading import Slice

if TYPE_CHECKING:
    from pigeon.tools.images.fitting import ImageFitter
    from pigeon.tools.images.resizing import Fitted

BIGGEST_IMAGE = 64 << 20


def _title(arguments: dict[str, Json]) -> str:
    offset, limit = _parse_number(arguments.get("offset")), _parse_number(arguments.get("limit"))
    lines = ""
    if limit is not None:
        first = 1 if offset is None else offset
        lines = f" ({first}-{first + limit - 1})"
    elif offset is not None:
        lines = f" (from {offset})"
    return f"Read {arguments.get('path')}{lines}"


def _parse_number(value: Json) -> int | None:
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else None


class ReadTool(BaseTool):
    """Reads from the start or from a line on, and explains how to continue when it stops early."""

    name = "read"
    description = (
        f"Read a file. Text is returned unchanged, at most {MAX_LINES} lines or {MAX_BYTES // 1024}KB at once; use "
        "offset and limit to continue in a long file. Images (jpg, png, gif, webp, bmp) are shown to you."
    )
    parameters: ClassVar[dict[str, Json]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the working directory or absolute"},
            "offset": {"type": "number", "description": "The first line to read, counted from 1"},
            "limit": {"type": "number", "description": "Maximum number of lines to read"},
        },
        "required": ["path"],
    }
    snippet = "Read files"
    strict = True
    guidelines = ("Read a file with read, not with cat or sed.",)
    reads_only = True
    facts = ToolFacts(_title, kind="read", path="path", line="offset")

    def __init__(
        self,
        paths: PathResolver,
        fitter: ImageFitter,
        resize_images: Callable[[], bool] = lambda: True,
        files: FileAccess | None = None,
    ) -> None:
        self._paths = paths
        self._files = files or FileAccess()
        self._fitter = fitter
        self._resize_images = resize_images

    @classmethod
    def create(cls, parts: ToolParts) -> ReadTool:
        """The tool for a working directory."""
        return cls(parts.paths, parts.fitter, parts.resize_images, parts.files)

    def resolve_subject(self, arguments: dict[str, Json]) -> Awaitable[PathSubject]:
        return hold_path_subject(self._paths, str(arguments["path"]), "read")

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Read a file; a path that cannot be read is an error with the system's reason."""
        path, held = str(arguments["path"]), held_path(run)
        first = parse_whole_number(arguments, "offset", 1) if arguments.get("offset") else 1
        count = None if arguments.get("limit") is None else parse_whole_number(arguments, "limit", 1)
        try:
            found = await self._files.read_lines(run, held, first, count, _is_image)
        except OSError as error:
            deed = "read" if isinstance(error, IsADirectoryError) else "access"
            raise ToolFailed(error_text(error, deed, held.place)) from error
        if isinstance(found, Slice):
            return _make_outcome(path, first, found)
        if len(found) > BIGGEST_IMAGE:
            raise ToolFailed(error_text(OSError(errno.EFBIG, "file too large"), "access", held.place))
        return _make_image_outcome(await run.scope.wait(self._fit_image(found)))

    async def _fit_image(self, data: bytes) -> Fitted:
        from pigeon.tools.images.resizing import SNIFFED_BYTES, Profile, image_type

        kind = image_type(data[:SNIFFED_BYTES])
        assert kind is not None
        return await self._fitter.fit_image(data, kind, Profile() if self._resize_images() else None)


def _is_image(start: bytes) -> bool:
    from pigeon.tools.images.resizing import SNIFFED_BYTES, image_type

    return image_type(start[:SNIFFED_BYTES]) is not None


def _make_image_outcome(image: Fitted) -> ToolOutcome:
    notes = [f"Read image file [{image.mime}]", *image.hints]
    content: list[UserBlock] = [TextContent(text="\n".join(notes))]
    if image.data is not None:
        content.append(ImageContent(data=image.to_base64(), mime_type=image.mime))
    return ToolOutcome(content=content)


def _make_outcome(path: str, first: int, lines: Slice) -> ToolOutcome:
    if first > max(1, lines.total_lines):
        raise ToolFailed(f"Offset {first} is beyond end of file ({lines.total_lines} lines total)")
    total = f"{lines.total_lines}{'' if lines.total_exact else '+'}"
    shown = _limit_lines(lines)
    if shown.first_line_exceeds_limit:
        size, limit = human_size(lines.first_line_size), human_size(MAX_BYTES)
        way_out = f"Use bash: sed -n '{first}p' {path} | head -c {MAX_BYTES}"
        text = f"[Line {first} is {size}, exceeds {limit} limit. {way_out}]"
        return make_text_outcome(text, {"truncation": shown.to_record()})
    last = first + shown.output_lines - 1
    if shown.is_truncated:
        limit = f" ({human_size(MAX_BYTES)} limit)" if shown.truncated_by == "bytes" else ""
        notice = f"[Showing lines {first}-{last} of {total}{limit}. Use offset={last + 1} to continue.]"
        return make_text_outcome(f"{shown.text}\n\n{notice}", {"truncation": shown.to_record()})
    if last < lines.total_lines:
        text = shown.text.removesuffix("\n")
        notice = f"[{lines.total_lines - last} more lines in file. Use offset={last + 1} to continue.]"
        return make_text_outcome(f"{text}\n\n{notice}")
    return ToolOutcome(content=[TextContent(text=shown.text)])


def _limit_lines(lines: Slice) -> Shown:
    whole = len(lines.data) == lines.size
    text = lines.data.decode("utf-8", "replace")
    return truncate_to_head(text, total_lines=lines.lines, total_bytes=None if whole else lines.size)
