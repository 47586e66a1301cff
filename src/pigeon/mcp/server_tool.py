"""A tool of a server in the form that the loop runs, and the server's answer as a result within the usual limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from pigeon.agent.arguments import validate_arguments
from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import ArgumentTool, ToolRun
from pigeon.agent.tool_facts import ToolFacts
from pigeon.mcp.connector.records import CallTool, OfferedTool, ServerResult
from pigeon.mcp.server import ToolServer
from pigeon.system.shell.shell import Workplace
from pigeon.system.shell.truncation import Shown, human_size, truncate_to_head
from pigeon.tools.server_tools import server_tool_facts
from pigeon.wire import codec
from pigeon.wire.base import ABSENT, Json
from pigeon.wire.content import ImageContent, ImageInput, TextContent, UserBlock, to_image_content
from pigeon.wire.errors import Aborted, BadRecord, ToolFailed
from pigeon.wire.events import ToolOutcome
from pigeon.wire.tokens import estimated_tokens

NOTHING = "(no output)"
# Instructions that would be cut shorter than this are left out.
LEAST_INSTRUCTIONS = 200
# Where full outputs are stored and how keys are masked; both change with the working folder.
WorkplaceNow = Callable[[], Workplace]


class ServerTool(ArgumentTool):
    """One tool. Its server's declarations are not trusted: the read-only hint only allows parallel calls."""

    def __init__(
        self, name: str, tool: OfferedTool, server: ToolServer, workplace: WorkplaceNow, called: Callable[[str], None]
    ) -> None:
        """`called` is called with the tool's name for each call, so that the tool is no longer deferred."""
        self._tool = tool.name
        self._server = server
        self._workplace = workplace
        self._called = called
        self.reads_only = tool.reads_only
        self.spec = ToolSpec(name, tool.description or self._tool, _to_object_schema(tool.parameters))
        self._bare = self.spec
        # The description without instructions.
        size = len(name) + len(self.spec.description) + len(codec.encode(self.spec.parameters))
        self.tokens = estimated_tokens(size)

    def set_instructions(self, room: int) -> None:
        """Add the server's instructions to the description, cut to `room` characters."""
        said = self._server.instructions.strip()
        text = f"\n\nThe server {self._server.config.name} says of all of its tools: {said}" if said else ""
        if len(text) > room:
            text = f"{text[: room - 3]}..." if room >= LEAST_INSTRUCTIONS else ""
        self.spec = replace(self._bare, description=self._bare.description + text) if text else self._bare

    @property
    def instructions_length(self) -> int:
        """How many characters of the description are instructions."""
        return len(self.spec.description) - len(self._bare.description)

    @property
    def definition(self) -> ToolSpec:
        """With all instructions of the server: how many of them the model sees depends on other servers."""
        return replace(self._bare, description=f"{self._bare.description}\n\n{self._server.instructions}")

    @property
    def facts(self) -> ToolFacts:
        return server_tool_facts(self.spec.name)

    @property
    def server(self) -> ToolServer:
        return self._server

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Send the call to the server and return its result."""
        self._called(self.spec.name)

        async def report_progress(text: str) -> None:
            await run.update(ToolOutcome(content=[TextContent(text=text)]))

        try:
            answer = await self._server.send_request(
                CallTool(tool=self._tool, arguments=arguments), run, report_progress
            )
        except Aborted:
            raise ToolFailed(f"The call of {self.spec.name} was aborted") from None
        outcome = outcome_of(answer, self._workplace(), self.spec.name)
        if answer.is_error:
            texts = [block.text for block in outcome.content if isinstance(block, TextContent)]
            raise ToolFailed("\n".join(texts) or "The tool failed", outcome.details)
        return outcome


class ExpectedTool(ArgumentTool):
    """A tool that is called before its server has listed it: permissions are decided first, then the call waits for the
    server. The tool gets exactly the arguments that were approved. If its schema would change them, the call fails: the
    model calls the tool again, and the corrected arguments need a new decision."""

    reads_only = False

    def __init__(self, name: str, arrive: Callable[[], Awaitable[ServerTool]]) -> None:
        """`arrive` waits for the tool; it raises `ToolFailed`."""
        self._arrive = arrive
        self.spec = ToolSpec(name, "", {"type": "object", "properties": {}})

    @property
    def definition(self) -> None:
        """Returns None: its server has not said what it means, so a yes is for one call."""
        return

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Wait for the tool and run it."""
        tool = await run.scope.wait(self._arrive())
        name = self.spec.name
        if validate_arguments(name, tool.spec.parameters, arguments) != arguments:
            raise ToolFailed(f"{name} was not run: its server has been connected only now. Call {name} again")
        return await tool.execute(arguments, run)


def outcome_of(answer: ServerResult, place: Workplace, tool: str) -> ToolOutcome:
    """A result within the limits of all tools; if it is cut, the full text is stored in a file."""
    texts = [block.text for block in answer.content if isinstance(block, TextContent)]
    whole = "\n".join(texts)
    shown = truncate_to_head(whole)
    if shown.first_line_exceeds_limit:
        # Many servers answer with a single long line: its beginning is better than nothing.
        shown = replace(shown, text=whole.encode("utf-8", "replace")[: shown.limits.bytes].decode("utf-8", "ignore"))
    details: dict[str, Json] = {}
    if answer.structured is not None:
        details["structuredContent"] = answer.structured
    blocks = _replace_invalid_images(answer.content)
    if shown.is_truncated:
        note, path = _store_full_text(whole, shown, place, tool)
        details["truncation"] = shown.to_record()
        if path is not None:
            details["fullOutputPath"] = path
        blocks = [
            TextContent(text=shown.text + note),
            *(block for block in blocks if not isinstance(block, TextContent)),
        ]
    return ToolOutcome(content=blocks or [TextContent(text=NOTHING)], details=details or ABSENT)


def _replace_invalid_images(content: list[TextContent | ImageContent]) -> list[UserBlock]:
    """The blocks of a result; an invalid image becomes a text about that."""
    blocks: list[UserBlock] = []
    for block in content:
        if isinstance(block, TextContent):
            blocks.append(block)
            continue
        try:
            blocks.append(to_image_content(ImageInput(data=block.data, mime_type=block.mime_type), "content"))
        except BadRecord as error:
            blocks.append(TextContent(text=f"[An image cannot be shown: {error}]"))
    return blocks


def _store_full_text(whole: str, shown: Shown, place: Workplace, tool: str) -> tuple[str, str | None]:
    file = place.artifacts.create(tool)
    if file is not None:
        whole = whole if place.mask is None else place.mask.mask_text(whole)
        file.write(whole.encode("utf-8", "replace"))
        file.close()
    where = f"Full output: {file.path}" if file is not None and file.is_complete else "The rest is lost"
    size = f" ({human_size(shown.limits.bytes)} limit)" if shown.truncated_by == "bytes" else ""
    lines = f"lines 1-{shown.output_lines}" if shown.output_lines else "the beginning of line 1"
    return (
        f"\n\n[Showing {lines} of {shown.total_lines}{size}. {where}]",
        None if file is None else file.path,
    )


def _to_object_schema(schema: Json) -> dict[str, Json]:
    """A schema of type object, which every provider requires."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return {"type": "object", "properties": {}}
    return (
        {"type": "object", **schema}
        if isinstance(schema.get("properties"), dict)
        else {**schema, "type": "object", "properties": {}}
    )
