"""Answers of servers as records for the agent, cut to the sizes that it accepts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mcp_types as types
import msgspec

from pigeon.mcp.connector.records import OfferedPrompt, OfferedResource, OfferedTool, PromptArgument, ServerResult
from pigeon.mcp.connector.trimming import MOST_BLOCKS, MOST_OFFERED, MOST_TOOLS, strip_hidden_chars
from pigeon.wire.content import ImageContent, TextContent

MOST_TEXT = 4 * 1024 * 1024
MOST_IMAGE = 12 * 1024 * 1024
MOST_STRUCTURED = 256 * 1024
LONGEST_TOOL_NAME = 200
LONGEST_DESCRIPTION = 4 * 1024
LARGEST_SCHEMA = 64 * 1024

Block = TextContent | ImageContent


def to_offered_tools(tools: Iterable[types.Tool]) -> tuple[list[OfferedTool], list[str]]:
    """The tools that can be used, and notes about those that were left out."""
    found: dict[str, OfferedTool] = {}
    notes: list[str] = []
    for tool in tools:
        if len(found) == MOST_TOOLS:
            notes.append(f"it offers more than {MOST_TOOLS} tools; the others are left out")
            break
        schema = tool.input_schema
        if not tool.name or len(tool.name) > LONGEST_TOOL_NAME:
            notes.append(f"a tool is left out: its name has {len(tool.name)} characters")
        elif tool.name in found:
            notes.append(f"the tool {tool.name!r} appears twice; the second is left out")
        elif len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
            notes.append(f"the tool {tool.name!r} is left out: its parameters are described in more than 64 KB")
        else:
            about = tool.description or tool.title or ""
            hints = tool.annotations
            found[tool.name] = OfferedTool(
                name=tool.name,
                description=about[:LONGEST_DESCRIPTION],
                parameters=schema,
                reads_only=bool(hints and hints.read_only_hint),
            )
    return list(found.values()), notes[:20]


def to_offered_prompts(prompts: Iterable[types.Prompt]) -> list[OfferedPrompt]:
    """Prompts with the names of their arguments."""
    return [
        OfferedPrompt(
            name=prompt.name[:LONGEST_TOOL_NAME],
            description=(prompt.description or prompt.title or "")[:500],
            arguments=[
                PromptArgument(name=argument.name, required=bool(argument.required))
                for argument in (prompt.arguments or [])[:50]
            ],
        )
        for prompt in list(prompts)[:MOST_OFFERED]
        if prompt.name
    ]


def to_offered_resources(
    resources: Iterable[types.Resource], templates: Iterable[types.ResourceTemplate]
) -> list[OfferedResource]:
    """The resources that can be read, then the templates for the addresses of others."""
    listed: list[tuple[str, Any, bool]] = [(str(one.uri), one, False) for one in list(resources)[:MOST_OFFERED]]
    listed += [(one.uri_template, one, True) for one in list(templates)[:MOST_OFFERED]]
    return [
        OfferedResource(
            uri=uri[:2000],
            name=(one.title or one.name or uri)[:200],
            description=(one.description or "")[:500],
            mime_type=one.mime_type or "",
            is_template=is_template,
        )
        for uri, one, is_template in listed
    ]


class Cutter:
    """Collects the blocks of one answer, up to limits on their number and size."""

    def __init__(self) -> None:
        self._left = MOST_TEXT
        self._blocks: list[Block] = []

    def blocks(self) -> list[Block]:
        return self._blocks

    def add_text(self, text: str) -> None:
        if len(self._blocks) >= MOST_BLOCKS:
            return
        kept = text[: max(0, self._left)]
        self._left -= len(kept)
        if len(kept) < len(text):
            kept += f"\n[{len(text) - len(kept)} more characters were left out]"
        self._blocks.append(TextContent(text=kept))

    def add_final_note(self, note: str) -> None:
        """Add a final note, even beyond the limits."""
        self._blocks.append(TextContent(text=note))

    def add_image(self, data: str, mime: str) -> None:
        if len(data) > MOST_IMAGE:
            self.add_text(f"[An image of {len(data) * 3 // 4} bytes was left out]")
        elif len(self._blocks) < MOST_BLOCKS:
            self._blocks.append(ImageContent(data=data, mime_type=mime))

    def add_content(self, block: Any) -> None:
        """Add a content block of any kind that the protocol has."""
        if isinstance(block, types.TextContent):
            self.add_text(block.text)
        elif isinstance(block, types.ImageContent):
            self.add_image(block.data, block.mime_type)
        elif isinstance(block, types.EmbeddedResource):
            self.add_resource(block.resource)
        elif isinstance(block, types.ResourceLink):
            about = f": {block.description}" if block.description else ""
            self.add_text(strip_hidden_chars(f"[Resource {block.name} at {block.uri}{about}]"))
        elif isinstance(block, types.AudioContent):
            self.add_text(f"[Audio ({block.mime_type}) of {len(block.data) * 3 // 4} bytes, which is not shown]")
        else:
            self.add_text(f"[Content of an unknown kind: {type(block).__name__}]")

    def add_resource(self, resource: Any) -> None:
        """Add the content of a resource that was read."""
        if isinstance(resource, types.TextResourceContents):
            self.add_text(resource.text)
        elif isinstance(resource, types.BlobResourceContents):
            mime = resource.mime_type or "application/octet-stream"
            if mime.startswith("image/"):
                self.add_image(resource.blob, mime)
            else:
                self.add_text(f"[{resource.uri}: {len(resource.blob) * 3 // 4} bytes of {mime}, which are not shown]")


def result_of_call(result: types.CallToolResult) -> ServerResult:
    """The result of a tool; structured content is added as text if no text contains it."""
    cutter = Cutter()
    for block in result.content[:MOST_BLOCKS]:
        cutter.add_content(block)
    if len(result.content) > MOST_BLOCKS:
        cutter.add_final_note(f"[Of the blocks of this result, those after the first {MOST_BLOCKS} were left out]")
    structured = result.structured_content
    small: Any = None
    if structured is not None:
        encoded = msgspec.json.encode(structured)
        if not any(isinstance(block, types.TextContent) for block in result.content):
            cutter.add_text(encoded.decode())
        small = structured if len(encoded) <= MOST_STRUCTURED else None
    return ServerResult(content=cutter.blocks(), structured=small, is_error=bool(result.is_error))


def result_of_prompt(result: types.GetPromptResult) -> ServerResult:
    """The messages of a prompt as blocks; those that are not the user's are marked."""
    cutter = Cutter()
    for message in result.messages:
        if message.role != "user":
            cutter.add_text(f"[{message.role}]")
        cutter.add_content(message.content)
    return ServerResult(content=cutter.blocks())


def result_of_reading(result: types.ReadResourceResult) -> ServerResult:
    """The contents of a resource as blocks of a result."""
    cutter = Cutter()
    for part in result.contents:
        cutter.add_resource(part)
    return ServerResult(content=cutter.blocks())
