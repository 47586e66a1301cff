"""Twenty agents in one process, each with an answer: what one more costs. Run by the Python that has the library.

python in_process.py pigeon|tau|openai-agents|pydantic-ai URL
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

COUNT = 20
PROMPT = "please answer"
INSTRUCTIONS = "You are a coding agent."
Ask = Callable[[], Awaitable[Any]]


def run_shell(command: str) -> str:
    """Run a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


def use_pigeon(url: str) -> Ask:
    import pigeon

    kept = []

    async def ask() -> str:
        agent = pigeon.Agent(model="bench/bench")
        await agent.__aenter__()
        kept.append(agent)
        texts = [event.delta async for event in agent.prompt(PROMPT) if isinstance(event, pigeon.TextDelta)]
        return "".join(texts)

    return ask


def use_tau(url: str) -> Ask:
    from tau_agent.harness import AgentHarness, AgentHarnessConfig
    from tau_ai.openai_compatible import OpenAICompatibleConfig, OpenAICompatibleProvider
    from tau_coding.tools import create_coding_tools

    provider = OpenAICompatibleProvider(OpenAICompatibleConfig(api_key="x", base_url=url))
    kept = []

    async def ask() -> str:
        tools = create_coding_tools(cwd=os.getcwd())
        agent = AgentHarness(AgentHarnessConfig(provider=provider, model="bench", system=INSTRUCTIONS, tools=tools))
        kept.append(agent)
        return str([event async for event in agent.prompt(PROMPT)][-1])

    return ask


def use_openai_agents(url: str) -> Ask:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(api_key="x", base_url=url)
    kept = []

    async def ask() -> str:
        model = OpenAIChatCompletionsModel("bench", openai_client=client)
        agent = Agent(name="bench", instructions=INSTRUCTIONS, tools=[function_tool(run_shell)], model=model)
        result = Runner.run_streamed(agent, PROMPT)
        async for _ in result.stream_events():
            pass
        kept.append((agent, result.to_input_list()))
        return str(result.final_output)

    return ask


def use_pydantic_ai(url: str) -> Ask:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=url, api_key="x")
    kept = []

    async def ask() -> str:
        agent = Agent(OpenAIChatModel("bench", provider=provider), system_prompt=INSTRUCTIONS, tools=[run_shell])
        async with agent.run_stream(PROMPT) as result:
            text = "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)])
            kept.append((agent, result.all_messages()))
        return text

    return ask


LIBRARIES = {
    "pigeon": use_pigeon,
    "tau": use_tau,
    "openai-agents": use_openai_agents,
    "pydantic-ai": use_pydantic_ai,
}


def own_memory_kb() -> int:
    """What this process alone has in memory."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private"))


async def main() -> None:
    ask = LIBRARIES[sys.argv[1]](sys.argv[2])
    await ask()
    before, memory = time.process_time(), own_memory_kb()
    answers = [await ask() for _ in range(COUNT)]
    used, grown = time.process_time() - before, own_memory_kb() - memory
    if not all("42" in answer for answer in answers):
        sys.exit("an answer is missing")
    sys.stdout.write(json.dumps({"cpu": used / COUNT, "memory_kb": grown / COUNT}) + "\n")
    sys.stdout.flush()
    # Libraries differ in what they want closed.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
