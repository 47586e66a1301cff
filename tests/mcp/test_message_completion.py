"""What is offered for the end of a message, and how what it names is read."""

from __future__ import annotations

import pytest

import pigeon
from pigeon.wire.base import ABSENT
from support.sdk_agents import ServedAgents, scripted_server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_what_can_be_read_and_the_arguments_of_prompts_are_completed(agents: ServedAgents) -> None:
    silent = scripted_server("never_answers_calls")
    agents.write({"notes": scripted_server(), "silent": silent})
    async with agents.agent() as agent:

        async def completions_for(text: str) -> tuple[str, list[str]]:
            found = await agent.complete_mcp(text)
            assert text.endswith(found.replaces)
            return found.replaces, [one.text for one in found.completions]

        assert await completions_for("look at @notes") == ("notes", ["notes:note://", "notes:note://one"])
        assert await completions_for("look at @one") == ("one", ["notes:note://one", "silent:note://one"])
        assert await completions_for("@notes:note://t") == ("notes:note://t", ["notes:note://two"])
        assert await completions_for("@notes:") == ("notes:", ["notes:note://", "notes:note://one"])
        assert await completions_for("@nobody:x") == ("nobody:x", [])
        assert await completions_for("mail@notes") == ("", [])
        assert await completions_for("/mcp__n") == ("mcp__n", ["mcp__notes__poem"])
        assert await completions_for("/mcp__notes__poem ") == ("", ["pigeons", "'the sea'", "topic=", "tone="])
        assert await completions_for("/mcp__notes__poem pi") == ("pi", ["pigeons"])
        assert await completions_for("/mcp__notes__poem sea m") == ("m", ["merry-about-sea"])
        assert await completions_for("/mcp__notes__poem topic=sea tone=s") == ("s", ["sad-about-sea"])
        assert await completions_for("/mcp__notes__poem a b c") == ("c", [])
        assert await completions_for("no word of servers") == ("", [])
        (template,) = [one for one in (await agent.complete_mcp("@notes:")).completions if one.label is not ABSENT]
        assert template.label == "notes:note://{name}"
        assert await completions_for("/mcp__silent__poem x") == ("x", []), (
            "a server that does not answer is not waited for"
        )


async def test_a_prompt_that_is_sent_before_its_server_is_there_waits_for_it(agents: ServedAgents) -> None:
    agents.write({"notes": scripted_server(), "other": scripted_server("hangs")})
    async with agents.agent(wait=False) as agent:
        result = await agent.run("/mcp__notes__poem pigeons merry")
        assert _user(result)[0] == "Write a poem about pigeons (merry)"
        with pytest.raises(pigeon.PigeonError, match=r"has no prompt /mcp__notes__ode \(known: /mcp__notes__poem\)"):
            await agent.run("/mcp__notes__ode x")


async def test_signs_behind_a_mention_do_not_belong_to_it(agents: ServedAgents) -> None:
    agents.write({"notes": scripted_server()})
    async with agents.agent() as agent:
        result = await agent.run("Compare @notes:note://one, and (see @notes:note://two). Or @notes:note://one?")
    assert _user(result)[1:] == [
        "Content of @notes:note://one:",
        "the text of note://one",
        "Content of @notes:note://two:",
        "the text of note://two",
    ]


async def test_what_is_read_is_cut_like_results_and_keys_are_masked(
    agents: ServedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTER_TOKEN", "tok-93b1c05e2277")
    agents.write({"notes": scripted_server(env={"KEY": "${REGISTER_TOKEN}"})})
    async with agents.agent() as agent:
        long = _user(await agent.run("read @notes:note://long"))[2]
        secret = _user(await agent.run("read @notes:note://tok-93b1c05e2277"))[2]
    assert len(long) < 60_000
    assert "Full output: " in long
    assert secret == "the text of note://***"


def _user(result: pigeon.Result) -> list[str]:
    (message,) = [one for one in result.messages if isinstance(one, pigeon.UserMessage)]
    return [block.text for block in message.content if isinstance(block, pigeon.TextContent)]
