"""A tool server written with the official Python SDK: over stdio, or over HTTP with or without a sign-in.

python python_sdk_server.py stdio|http|sse [PORT]
"""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("register", instructions="A register of cities.")


class City(BaseModel):
    """What is known of a city."""

    name: str
    people: int


class Sure(BaseModel):
    """An answer."""

    sure: bool


@server.tool()
def population(city: str) -> City:
    """How many people live in a city."""
    return City(name=city, people=340_000)


@server.tool()
async def erase(city: str, ctx: Context) -> str:  # type: ignore[type-arg]
    """Erase a city, after asking."""
    answer = await ctx.elicit(f"Erase {city}?", Sure)
    return f"{answer.action}: {getattr(answer, 'data', None)}"


@server.tool()
async def count(to: int, ctx: Context) -> str:  # type: ignore[type-arg]
    """Count, with progress."""
    for number in range(to):
        await ctx.report_progress(number + 1, to, f"at {number + 1}")
    return f"counted to {to}"


@server.prompt()
def greet(name: str) -> str:
    """Greet a person."""
    return f"Say hello to {name}."


@server.resource("city://{name}")
def city(name: str) -> str:
    """A city."""
    return f"{name} is a city."


if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "stdio":
        server.run("stdio")
    else:
        port = int(sys.argv[2])
        server.run("streamable-http" if kind == "http" else "sse", port=port)
