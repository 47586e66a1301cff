"""Completions for the end of a message that names something of a tool server: `@server:uri`, and the arguments of a
prompt. If the server supports it (`completion/complete`), it is asked, with a short time limit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from pigeon.mcp.connector.records import CompleteArgument, OfferedPrompt
from pigeon.mcp.named_content import describe_prompt, parse_named_arguments, prompts_by_command
from pigeon.mcp.server import ToolServer
from pigeon.wire.base import ABSENT
from pigeon.wire.commands.mcp import McpCompletion, McpCompletions
from pigeon.wire.errors import ToolFailed

MOST_OFFERED = 100
# Short, because a person is typing.
COMPLETE_SECONDS = 2.0
_WORD = r"(?:^|\s)@([^\s\"]*)$"
_VARIABLE = r"\{([+#]?)([A-Za-z0-9_.%]+)\}"


class MessageCompletion:
    """Completes messages. `servers` returns all servers by name."""

    def __init__(self, servers: Callable[[], Mapping[str, ToolServer]]) -> None:
        self._servers = servers

    async def complete_message(self, text: str) -> McpCompletions:
        """Completions for the end of a text; empty if it names nothing of a server."""
        name = text[1:].split(None, 1)[0] if text.startswith("/") and text[1:].strip() else ""
        found = prompts_by_command(self._servers().values()).get(name) if len(text) > len(name) + 1 else None
        if found is not None:
            return await self._complete_arguments(*found, text[len(name) + 1 :].lstrip())
        if text.startswith("/") and text == f"/{name}":
            return McpCompletions(replaces=name, completions=self._complete_command(name))
        word = re.search(_WORD, text)
        if word is None:
            return McpCompletions(replaces="", completions=[])
        return McpCompletions(replaces=word[1], completions=await self._complete_resource(word[1]))

    def _complete_command(self, typed: str) -> list[McpCompletion]:
        prompts = prompts_by_command(self._servers().values())
        return [
            McpCompletion(text=name, description=describe_prompt(prompt))
            for name, (_, prompt) in prompts.items()
            if name.startswith(typed)
        ][:MOST_OFFERED]

    async def _complete_resource(self, typed: str) -> list[McpCompletion]:
        given, colon, uri = typed.partition(":")
        if colon and given in self._servers():
            servers = [self._servers()[given]]
        else:
            servers, uri = list(self._servers().values()), ""
        wanted = typed.lower()
        found: dict[str, McpCompletion] = {}
        for server in servers:
            if colon and uri:
                for value in await self._complete_template(server, uri):
                    found.setdefault(f"{given}:{value}", McpCompletion(text=f"{given}:{value}"))
            for one in server.resources:
                start = one.uri.partition("{")[0] if one.is_template else one.uri
                text = f"{server.config.name}:{start}"
                if wanted in text.lower() or (wanted and wanted in one.name.lower()):
                    about = one.description or one.name
                    key = f"{server.config.name}:{one.uri}"
                    label = key if one.is_template else ABSENT
                    found.setdefault(key, McpCompletion(text=text, label=label, description=about))
        ranked = sorted(found.values(), key=lambda one: (not one.text.lower().startswith(wanted), one.text))
        return [one for one in ranked if one.text != typed][:MOST_OFFERED]

    async def _complete_template(self, server: ToolServer, uri: str) -> list[str]:
        """The address, completed with the values that the server offers for the template variable at its end."""
        for one in server.resources:
            part = match_template(one.uri, uri) if one.is_template else None
            if part is None:
                continue
            name, before, known = part
            value = known.pop(name)
            request = CompleteArgument(template=one.uri, argument=name, value=value, known=known)
            values = await self._fetch_values(server, request)
            if values:
                return [before + value for value in values]
        return []

    async def _complete_arguments(self, server: ToolServer, prompt: OfferedPrompt, rest: str) -> McpCompletions:
        names = [one.name for one in prompt.arguments]
        *before, typed = re.split(r"\s+", rest)
        given, plain = parse_named_arguments(before, names)
        left = [name for name in names if name not in given]
        given |= dict(zip(left, plain, strict=False))
        left = left[len(plain) :]
        name, equals, value = typed.partition("=")
        if not (equals and name in names):
            name, value = (left[0] if left else "", typed)
        if not name:
            return McpCompletions(replaces=typed, completions=[])
        request = CompleteArgument(prompt=prompt.name, argument=name, value=value, known=given)
        values = await self._fetch_values(server, request)
        offered = [McpCompletion(text=shlex.quote(one) if re.search(r"[\s'\"\\]", one) else one) for one in values]
        if value == typed:
            offered += [McpCompletion(text=f"{one}=") for one in left if f"{one}=".startswith(typed)]
        return McpCompletions(replaces=value, completions=offered[:MOST_OFFERED])

    async def _fetch_values(self, server: ToolServer, request: CompleteArgument) -> list[str]:
        if server.status != "connected" or not server.can_complete:
            return []
        try:
            answer = await server.send_request(request, seconds=COMPLETE_SECONDS)
        except ToolFailed:
            return []
        return [one for one in answer.values if one and one.isprintable() and len(one) <= 1000]


def match_template(template: str, uri: str) -> tuple[str, str, dict[str, str]] | None:
    """The template variable that an address ends in: its name, the address before it, and all values so far.

    Only `{name}` and `{+name}` are supported; None if the address does not match, or ends elsewhere. A value ends at
    the first occurrence of the literal text that follows it.
    """
    pieces = re.split(_VARIABLE, template)
    if any("{" in literal for literal in pieces[::3]) or not uri.startswith(pieces[0]):
        return None
    at, known = len(pieces[0]), dict[str, str]()
    for sign, name, behind in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        end = uri.find(behind, at) if behind else -1
        value = uri[at:] if end < 0 else uri[at:end]
        if "/" in value and not sign:
            return None
        known[name] = value
        if end < 0:
            return name, uri[:at], known
        at = end + len(behind)
    return None
