"""Content of tool servers that a message refers to: prompts as slash commands, and resources as `@server:uri`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from pigeon.mcp.connector.records import GetPrompt, OfferedPrompt, ReadResource, ServerResult
from pigeon.mcp.server import ToolServer
from pigeon.mcp.server_tool import WorkplaceNow, outcome_of
from pigeon.mcp.tool_names import make_distinct_names, make_full_name
from pigeon.session.dependencies import ServerContent
from pigeon.tools.server_tools import PREFIX
from pigeon.wire.answers import SlashCommand
from pigeon.wire.commands.mcp import McpResource
from pigeon.wire.content import TextContent, UserBlock
from pigeon.wire.errors import Refusal, ToolFailed

MOST_MENTIONS = 20
# Punctuation that may follow a mention without belonging to it.
_SENTENCE = ".,;:!?)]}'\""
_MENTION = r"(?:^|(?<=\s))@([^\s:@\"]+):(\S+)"


class NamedContent:
    """Fetches that content when a message is sent. `servers` returns all servers by name."""

    def __init__(self, servers: Callable[[], Mapping[str, ToolServer]], workplace: WorkplaceNow) -> None:
        self._servers = servers
        self._workplace = workplace

    def resources(self) -> list[McpResource]:
        return [one for server in self._servers().values() for one in server.list_resources()]

    def list_commands(self) -> list[SlashCommand]:
        """The prompts of all servers, as slash commands."""
        return [
            SlashCommand(name=name, description=describe_prompt(prompt), source="prompt")
            for name, (_, prompt) in prompts_by_command(self._servers().values()).items()
        ]

    def fetch_mentioned_content(self, text: str) -> Awaitable[ServerContent] | ServerContent:
        """The content that a message refers to; returned without awaiting if there is none."""
        if not self._servers():
            return ServerContent()
        if text.startswith(f"/{PREFIX}"):
            command = text[1:].split(None, 1)[0]
            asked = self._find_server_of_command(command)
            if asked is None:
                names = ", ".join(self._servers())
                raise Refusal(f"No tool server has the prompt /{command} (configured: {names})")
            return self._fetch_prompt(asked, text)
        mentions: dict[tuple[str, str], ToolServer] = {}
        for name, named in re.findall(_MENTION, text):
            server = self._servers().get(name)
            uri = None if server is None else _find_uri(server, named)
            if server is not None and uri is not None:
                mentions[name, uri] = server
        found = [(server, uri) for (_, uri), server in mentions.items()]
        return self._read_mentions(found[:MOST_MENTIONS]) if found else ServerContent()

    def _find_server_of_command(self, command: str) -> ToolServer | None:
        """The server that a command's prompt may belong to, even if its prompts are not known yet."""
        found = prompts_by_command(self._servers().values()).get(command)
        if found is not None:
            return found[0]
        fitting = [one for one in self._servers().values() if command.startswith(make_full_name(one.config.name, ""))]
        return max(fitting, key=lambda one: len(one.config.name), default=None)

    async def _fetch_prompt(self, server: ToolServer, text: str) -> ServerContent:
        command = text[1:].split(None, 1)[0]
        try:
            await server.wait_until_connected()
            prompts = {name: prompt for name, (_, prompt) in prompts_by_command([server]).items()}
            if command not in prompts:
                known = ", ".join(f"/{name}" for name in prompts) or "it has none"
                raise Refusal(f"The tool server {server.config.name} has no prompt /{command} (known: {known})")
            prompt = prompts[command]
            request = GetPrompt(name=prompt.name, arguments=_parse_prompt_arguments(prompt, text))
            blocks = self._to_masked_blocks(await server.send_request(request), command)
        except ToolFailed as error:
            raise Refusal(str(error)) from None
        texts = [block.text for block in blocks if isinstance(block, TextContent)]
        images = tuple(block for block in blocks if not isinstance(block, TextContent))
        return ServerContent("\n\n".join(texts), images)

    def _to_masked_blocks(self, answer: ServerResult, name: str) -> list[UserBlock]:
        """The answer, cut like a tool result and with keys masked."""
        place = self._workplace()
        mask = place.mask
        blocks = outcome_of(answer, place, name).content
        if mask is None:
            return list(blocks)
        return [TextContent(text=mask.mask_text(one.text)) if isinstance(one, TextContent) else one for one in blocks]

    async def _read_mentions(self, mentions: list[tuple[ToolServer, str]]) -> ServerContent:
        blocks: list[UserBlock] = []
        for server, uri in mentions:
            try:
                answer = await server.send_request(ReadResource(uri=uri))
            except ToolFailed as error:
                raise Refusal(f"@{server.config.name}:{uri} cannot be read: {error}") from None
            blocks.append(TextContent(text=f"Content of @{server.config.name}:{uri}:"))
            blocks += self._to_masked_blocks(answer, f"{PREFIX}{server.config.name}__resource")
        return ServerContent(None, tuple(blocks))


def prompts_by_command(servers: Iterable[ToolServer]) -> dict[str, tuple[ToolServer, OfferedPrompt]]:
    """All prompts by the names of their commands."""
    found: dict[str, tuple[ToolServer, OfferedPrompt]] = {}
    for server in servers:
        names = make_distinct_names(server.config.name, [prompt.name for prompt in server.prompts])
        for prompt in server.prompts:
            if prompt.name in names:
                found.setdefault(names[prompt.name], (server, prompt))
    return found


def _find_uri(server: ToolServer, named: str) -> str | None:
    """The address in a mention, without trailing punctuation; None if it is not one."""
    known = {one.uri for one in server.resources}
    bare = named.rstrip(_SENTENCE)
    if named in known:
        return named
    return bare if bare in known or ":" in bare else None


def describe_prompt(prompt: OfferedPrompt) -> str:
    """The description of a prompt and its arguments."""
    arguments = " ".join(f"<{one.name}>" if one.required else f"[{one.name}]" for one in prompt.arguments)
    return f"{prompt.description} {arguments}".strip()


def parse_named_arguments(words: Iterable[str], names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The arguments that are written `name=value`, and the other words in their order."""
    given: dict[str, str] = {}
    plain: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            given[name] = value
        else:
            plain.append(word)
    return given, plain


def _parse_prompt_arguments(prompt: OfferedPrompt, text: str) -> dict[str, str]:
    """The words after a command as arguments: in order, or as `name=value`; the last argument takes the rest."""
    rest = text.split(None, 1)[1] if len(text.split(None, 1)) > 1 else ""
    names = [one.name for one in prompt.arguments]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    given, plain = parse_named_arguments(words, names)
    open_names = [name for name in names if name not in given]
    for index, name in enumerate(open_names):
        if plain:
            given[name] = " ".join(plain) if index == len(open_names) - 1 else plain.pop(0)
            if index == len(open_names) - 1:
                plain = []
    missing = [one.name for one in prompt.arguments if one.required and one.name not in given]
    if missing:
        raise Refusal(f"{text.split(None, 1)[0]} needs {', '.join(missing)} (usage: {describe_prompt(prompt)})")
    return given
