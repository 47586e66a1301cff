"""A tool of a server as the loop runs it, and what the server answers as a result: cut and kept like that of others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from pigeon.agent.arguments import checked_arguments
from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import ArgumentTool, ToolRun
from pigeon.mcp.server import Record, ToolServer
from pigeon.system.shell.shell import Workplace
from pigeon.system.shell.truncation import Shown, head_of, human_size
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.content import ImageInput, TextContent, UserBlock, image_block
from pigeon.wire.errors import Aborted, BadRecord, ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.tokens import estimated_tokens

NOTHING = "(no output)"
# Fewer characters of what a server says are worse than nothing.
LEAST_INSTRUCTIONS = 200
# Where whole outputs are kept and how keys are masked, which change with the working folder.
WorkplaceNow = Callable[[], Workplace]


class ServerTool(ArgumentTool):
    """One tool. What the server says of it is a hint of a stranger: it may let calls run side by side, no more."""

    def __init__(
        self, name: str, tool: Record, server: ToolServer, workplace: WorkplaceNow, called: Callable[[str], None]
    ) -> None:
        """`called` hears the name of each tool that is called: it is not deferred any longer."""
        self._tool = str(tool["name"])
        self._server = server
        self._workplace = workplace
        self._called = called
        self.reads_only = tool["reads"] is True
        self.spec = ToolSpec(name, tool["description"] or self._tool, _parameters(tool["parameters"]))
        self._bare = self.spec
        # What it costs the prompt by itself.
        size = len(name) + len(self.spec.description) + len(codec.encode(self.spec.parameters))
        self.tokens = estimated_tokens(size)

    def instruct(self, room: int) -> None:
        """Tell the model with this tool what its server says of all of its tools, in so many characters at most."""
        said = self._server.instructions.strip()
        text = f"\n\nThe server {self._server.config.name} says of all of its tools: {said}" if said else ""
        if len(text) > room:
            text = f"{text[: room - 3]}..." if room >= LEAST_INSTRUCTIONS else ""
        self.spec = replace(self._bare, description=self._bare.description + text) if text else self._bare

    @property
    def instructions(self) -> int:
        """How many characters of its description are such instructions."""
        return len(self.spec.description) - len(self._bare.description)

    @property
    def server(self) -> ToolServer:
        """Where it is."""
        return self._server

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """The server does it."""
        self._called(self.spec.name)

        async def progress(text: str) -> None:
            await run.update(ToolOutcome(content=[TextContent(text=text)]))

        try:
            answer = await self._server.ask("call", {"tool": self._tool, "arguments": arguments}, run, progress)
        except Aborted:
            raise ToolFailed(f"The call of {self.spec.name} was aborted") from None
        outcome = outcome_of(answer, self._workplace(), self.spec.name)
        if answer["isError"]:
            texts = [block.text for block in outcome.content if isinstance(block, TextContent)]
            raise ToolFailed("\n".join(texts) or "The tool failed", outcome.details)
        return outcome


class ExpectedTool(ArgumentTool):
    """A tool that is called before its server has listed it: what may happen to the call is decided first, then the
    server is waited for. It gets exactly the arguments that were decided about; where its schema wants others, not even
    these: the model calls it again, and they are corrected before the next decision."""

    reads_only = False

    def __init__(self, name: str, arrive: Callable[[], Awaitable[ServerTool]]) -> None:
        """`arrive` waits for the tool; it raises `ToolFailed`."""
        self._arrive = arrive
        self.spec = ToolSpec(name, "", {"type": "object", "properties": {}})

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Wait for the tool and run it."""
        tool = await run.scope.wait(self._arrive())
        name = self.spec.name
        if checked_arguments(name, tool.spec.parameters, arguments) != arguments:
            raise ToolFailed(f"{name} was not run: its server has been connected only now. Call {name} again")
        return await tool.execute(arguments, run)


def outcome_of(answer: Record, place: Workplace, tool: str) -> ToolOutcome:
    """A result within the limits of all tools; what is cut is kept in a file."""
    texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
    whole = "\n".join(texts)
    shown = head_of(whole)
    if shown.first_line_exceeds_limit:
        # Many servers write all of their answer into one line: its beginning is better than nothing.
        shown = replace(shown, text=whole.encode("utf-8", "replace")[: shown.limits.bytes].decode("utf-8", "ignore"))
    details: dict[str, Json] = {}
    if answer["structured"] is not None:
        details["structuredContent"] = answer["structured"]
    blocks = content_blocks(answer["content"])
    if shown.truncated:
        note, path = _kept(whole, shown, place, tool)
        details["truncation"] = shown.record()
        if path is not None:
            details["fullOutputPath"] = path
        blocks = [
            TextContent(text=shown.text + note),
            *(block for block in blocks if not isinstance(block, TextContent)),
        ]
    return ToolOutcome(content=blocks or [TextContent(text=NOTHING)], details=details or ABSENT)


def content_blocks(content: list[Record]) -> list[UserBlock]:
    """Texts and images as messages have them; an image that is none is named."""
    blocks: list[UserBlock] = []
    for block in content:
        if block["type"] == "text":
            blocks.append(TextContent(text=block["text"]))
            continue
        try:
            blocks.append(image_block(codec.convert(block, ImageInput), "content"))
        except BadRecord as error:
            blocks.append(TextContent(text=f"[An image cannot be shown: {error}]"))
    return blocks


def _kept(whole: str, shown: Shown, place: Workplace, tool: str) -> tuple[str, str | None]:
    file = place.artifacts.create(tool)
    if file is not None:
        whole = whole if place.mask is None else place.mask.mask_text(whole)
        file.write(whole.encode("utf-8", "replace"))
        file.close()
    where = f"Full output: {file.path}" if file is not None and file.complete else "The rest is lost"
    size = f" ({human_size(shown.limits.bytes)} limit)" if shown.truncated_by == "bytes" else ""
    lines = f"lines 1-{shown.output_lines}" if shown.output_lines else "the beginning of line 1"
    return (
        f"\n\n[Showing {lines} of {shown.total_lines}{size}. {where}]",
        None if file is None else file.path,
    )


def _parameters(schema: Json) -> dict[str, Json]:
    """An object's schema, as every provider wants one."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return {"type": "object", "properties": {}}
    return (
        {"type": "object", **schema}
        if isinstance(schema.get("properties"), dict)
        else {**schema, "type": "object", "properties": {}}
    )
