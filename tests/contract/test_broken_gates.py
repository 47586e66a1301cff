"""An extension that judges tool calls and breaks blocks them, in whatever way it breaks, and says so."""

from __future__ import annotations

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, extension
from support.agent_process import RpcProcess, Start
from support.contract import proves
from support.records import finished_messages, tool_texts

BROKEN = {
    "raises": "raise ValueError('bad day')",
    "raises what is no error": "raise KeyboardInterrupt",
    "raises what cannot be shown": "raise Unshowable()",
    "exits": "sys.exit(0)",
    "leaves": "os._exit(0)",
    "takes too long": "await asyncio.sleep(600)",
    "sleeps": "time.sleep(600)",
    "spins": "while True: pass",
    "cannot be stopped": "while True:\n        try: time.sleep(600)\n        except BaseException: pass",
    "is cancelled": "raise asyncio.CancelledError",
    "stops its loop": "asyncio.get_event_loop().stop(); await asyncio.sleep(600)",
    "closes its loop": "close_loop(asyncio.get_event_loop()); await asyncio.sleep(600)",
    "cancels everything": "[task.cancel() for task in asyncio.all_tasks()]; await asyncio.sleep(600)",
    "says yes": "return True",
    "says no": "return False",
    "says something": "return {'block': True}",
    "says it with another class": "return Cancel()",
    "says it later": "return asyncio.sleep(0)",
    "gives a reason that is none": "return Block(Unshowable())",
    "yields": "yield Block('no')",
    "makes arguments of nothing": "event.args['x'] = object()",
    "forgets the arguments": "event.args = None",
    "nests without end": "event.args['x'] = event.args",
}
# What would end the process is tried on one that was really started.
DEEDS = [pytest.param(deed, marks=pytest.mark.by_exec) if "xit" in BROKEN[deed] else deed for deed in BROKEN]
HEAD = """
class Unshowable(Exception):
    def __str__(self): raise ValueError("no text")
    __repr__ = __str__

def close_loop(loop):
    import threading
    def close():
        while True:
            loop.call_soon_threadsafe(loop.stop)
            try: loop.close()
            except RuntimeError: continue
            return
    threading.Thread(target=close, daemon=True).start()

@ext.on(ToolCall, tools=["Bash"], timeout=0.5)
async def gate(event, ctx):
    {deed}
"""


def called(host: RpcProcess, server: ModelServer) -> tuple[bool, str]:
    """One call of bash: whether it failed, and what the model got."""
    server.answers(Call("bash", {"command": "echo ran"}))
    server.answers("done")
    records = host.run("go")
    (failed,) = [message["isError"] for message in finished_messages(records, "toolResult")]
    (text,) = tool_texts(records)
    return failed, text


@proves("extension.gate_broken")
@pytest.mark.parametrize("deed", DEEDS)
def test_a_gate_that_breaks_blocks_this_call_and_the_next(
    start: Start, folders: AgentFolders, server: ModelServer, deed: str
) -> None:
    host = start(*extension(folders, HEAD.format(deed=BROKEN[deed])))
    for _ in range(2):
        failed, text = called(host, server)
        assert failed, text
        assert "ran" not in text.split()
        if deed == "gives a reason that is none":
            assert text == "blocked by an extension"
        else:
            assert 'The extension "test" could not judge this call' in text
    host.ask("get_state")


@proves("extension.gate_recovers")
def test_a_gate_that_fails_once_judges_again(start: Start, folders: AgentFolders, server: ModelServer) -> None:
    text = """
seen = []

@ext.on(ToolCall)
def gate(event):
    seen.append(1)
    if len(seen) == 1:
        raise ValueError("no connection")
"""
    host = start(*extension(folders, text))
    assert called(host, server)[0] is True
    assert called(host, server) == (False, "ran\n")


@proves("extension.gate_late")
@pytest.mark.parametrize("pause", ["0", "0.3"])
def test_a_gate_that_is_set_up_when_the_session_starts_counts_from_the_first_call(
    start: Start, folders: AgentFolders, server: ModelServer, pause: str
) -> None:
    text = f"""
@ext.on(SessionStart)
async def begin(event, ctx):
    await asyncio.sleep({pause})

    @ext.on("tool_call")
    def gate(event):
        return Block("not today")
"""
    assert called(start(*extension(folders, text)), server) == (True, "not today")
