"""What messages name of tool servers: prompts as slash commands, and things to read as `@server:uri`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping

from pigeon.mcp.server import Record, ToolServer
from pigeon.mcp.server_tool import content_blocks
from pigeon.mcp.tool_names import PREFIX, distinct_names
from pigeon.session.dependencies import ServerContent
from pigeon.wire.answers import SlashCommand
from pigeon.wire.commands.mcp import McpResource
from pigeon.wire.content import TextContent, UserBlock
from pigeon.wire.errors import Refusal, ToolFailed

MOST_MENTIONS = 20
_MENTION = r"(?:^|(?<=\s))@([^\s:@\"]+):(\S+)"


class NamedContent:
    """Reads it when a message is sent. `servers` are all that there are, by name."""

    def __init__(self, servers: Callable[[], Mapping[str, ToolServer]]) -> None:
        self._servers = servers

    def resources(self) -> list[McpResource]:
        """What they offer to be read."""
        return [one for server in self._servers().values() for one in server.readable()]

    def commands(self) -> list[SlashCommand]:
        """Their prompts, as slash commands."""
        return [
            SlashCommand(name=name, description=_about(prompt), source="prompt")
            for name, (_, prompt) in self._prompts().items()
        ]

    def content_of(self, text: str) -> Awaitable[ServerContent] | ServerContent:
        """What a message asks of them: at once if that is nothing."""
        if not self._servers():
            return ServerContent()
        if text.startswith(f"/{PREFIX}"):
            found = self._prompts().get(text[1:].split(None, 1)[0])
            if found is not None:
                return self._prompted(*found, text)
        mentions = [
            (self._servers()[name], uri)
            for name, uri in dict.fromkeys(re.findall(_MENTION, text))
            if name in self._servers() and self._may_read(self._servers()[name], uri)
        ]
        return self._mentioned(mentions[:MOST_MENTIONS]) if mentions else ServerContent()

    def _prompts(self) -> dict[str, tuple[ToolServer, Record]]:
        found: dict[str, tuple[ToolServer, Record]] = {}
        for server in self._servers().values():
            names = distinct_names(server.config.name, [prompt["name"] for prompt in server.prompts])
            for prompt in server.prompts:
                if prompt["name"] in names:
                    found.setdefault(names[prompt["name"]], (server, prompt))
        return found

    async def _prompted(self, server: ToolServer, prompt: Record, text: str) -> ServerContent:
        request = {"name": prompt["name"], "arguments": _prompt_arguments(prompt, text)}
        try:
            answer = await server.ask("prompt", request)
        except ToolFailed as error:
            raise Refusal(str(error)) from None
        blocks = content_blocks(answer["content"])
        texts = [block.text for block in blocks if isinstance(block, TextContent)]
        images = tuple(block for block in blocks if not isinstance(block, TextContent))
        return ServerContent("\n\n".join(texts), images)

    def _may_read(self, server: ToolServer, uri: str) -> bool:
        return ":" in uri or any(one["uri"] == uri for one in server.resources)

    async def _mentioned(self, mentions: list[tuple[ToolServer, str]]) -> ServerContent:
        blocks: list[UserBlock] = []
        for server, uri in mentions:
            try:
                answer = await server.ask("read", {"uri": uri})
            except ToolFailed as error:
                raise Refusal(f"@{server.config.name}:{uri} cannot be read: {error}") from None
            blocks.append(TextContent(text=f"Content of @{server.config.name}:{uri}:"))
            blocks += content_blocks(answer["content"])
        return ServerContent(None, tuple(blocks))


def _about(prompt: Record) -> str:
    arguments = " ".join(f"<{one['name']}>" if one["required"] else f"[{one['name']}]" for one in prompt["arguments"])
    return f"{prompt['description']} {arguments}".strip()


def _prompt_arguments(prompt: Record, text: str) -> dict[str, str]:
    """The words behind a command in the order of the arguments, or as `name=value`; the last takes the rest."""
    rest = text.split(None, 1)[1] if len(text.split(None, 1)) > 1 else ""
    names = [one["name"] for one in prompt["arguments"]]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    given: dict[str, str] = {}
    plain: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            given[name] = value
        else:
            plain.append(word)
    open_names = [name for name in names if name not in given]
    for index, name in enumerate(open_names):
        if plain:
            given[name] = " ".join(plain) if index == len(open_names) - 1 else plain.pop(0)
            if index == len(open_names) - 1:
                plain = []
    missing = [one["name"] for one in prompt["arguments"] if one["required"] and one["name"] not in given]
    if missing:
        raise Refusal(f"{text.split(None, 1)[0]} needs {', '.join(missing)} (usage: {_about(prompt)})")
    return given
