"""Keys in every place that keys come from, and everything that Pigeon writes searched for every form of them.

The model's own words are not searched while they stream: these tests let servers, tools, commands and extensions say
the keys.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from fakes.model_server import Call, ModelServer
from support.agent_folders import AgentFolders, model
from support.agent_process import RpcProcess, command_line
from support.contract import proves

NAMES = (
    "models",
    "variable",
    "stored",
    "header",
    "password",
    "parameter",
    "printed",
    "given",
    "known",
    "command",
    "proxy",
)
CANARIES = {name: f"ck-{name}+/Zq7{number}Xw=&9_tR" for number, name in enumerate(NAMES)}
APIS = (
    "anthropic-messages",
    "openai-completions",
    "openai-responses",
    "azure-openai-responses",
    "google-generative-ai",
)


def lower_escapes(key: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), quote(key, safe=""))


def forms(key: str) -> Iterator[str]:
    """What nothing may contain."""
    raw = key.encode()
    yield from (key, quote(key, safe=""), quote(key), lower_escapes(key), raw.hex(), raw.hex().upper())
    yield from (json.dumps(key)[1:-1], repr(key)[1:-1], html.escape(key), "".join(f"%{byte:02x}" for byte in raw))
    for before in ("", "u", "us", "user:", "Bearer "):
        encoded = base64.b64encode(f"{before}{key}zz".encode()).decode()
        start = len(before) + 2
        middle = encoded[start * 4 // 3 + 1 : -6]
        yield from (middle, middle.replace("+", "-").replace("/", "_"))


def leaks(text: str) -> list[str]:
    """The names of the keys that can be read in a text."""
    plain = text.replace("\\n", "").replace("\\/", "/").replace("\n", "").replace("\r", "")
    return [name for name, key in CANARIES.items() if any(form in text or form in plain for form in forms(key))]


@pytest.fixture
def canaries(folders: AgentFolders, server: ModelServer, request: pytest.FixtureRequest) -> AgentFolders:
    """An agent folder with a key in each place."""
    address = server.url.removeprefix("http://")
    echoing = {"api": "anthropic-messages", "models": [model("m")]}
    providers: dict[str, Any] = {
        api: {"baseUrl": f"{server.url}/v1", "api": api, "apiKey": CANARIES["models"], "models": [model("m")]}
        for api in APIS
    }
    providers |= {
        "variable": {**echoing, "baseUrl": server.url, "apiKey": "$MY_OWN_VARIABLE"},
        "stored": {**echoing, "baseUrl": server.url, "apiKey": "dummy-key"},
        "header": {
            **echoing, "baseUrl": server.url, "apiKey": "dummy-key",
            "headers": {"X-Team-Token": f"Bearer {CANARIES['header']}", "X-Other": "${OTHER_VARIABLE}"},
        },
        "printed": {**echoing, "baseUrl": server.url, "apiKey": f"!printf %s {shlex.quote(CANARIES['printed'])}"},
        "password": {
            **echoing, "apiKey": "dummy-key",
            "baseUrl": f"http://user:{quote(CANARIES['password'], safe='')}@{address}",
        },
        "parameter": {
            **echoing, "apiKey": "dummy-key",
            "baseUrl": f"{server.url}/v1?api_key={quote(CANARIES['parameter'], safe='')}",
        },
    }  # fmt: skip
    folders.configure({"providers": providers}, {"retry": {"enabled": False}})
    (folders.agent / "auth.json").write_text(json.dumps({"stored": {"type": "api_key", "key": CANARIES["stored"]}}))
    return folders


VARIABLES = {
    "MY_OWN_VARIABLE": CANARIES["variable"],
    "OTHER_VARIABLE": CANARIES["command"],
    "OPENAI_API_KEY": CANARIES["known"],
    "COPY_OF_IT": f"Bearer {CANARIES['known']}",
    "PACKED": base64.b64encode(f"user:{CANARIES['models']}".encode()).decode(),
    "NO_PROXY": "*",
    "ALL_PROXY": f"http://me:{quote(CANARIES['proxy'], safe='')}@127.0.0.1:1",
    "HARMLESS": "stays",
}


def written_by(agent: RpcProcess) -> dict[str, str]:
    """Everything that the process has written, by the name of the place."""
    found = {"stdout": b"".join(agent.raw).decode(), "stderr": agent.stderr}
    folders = agent.folders
    for folder in (folders.agent / "sessions", folders.work, folders.temp):
        for file in folder.rglob("*"):
            if file.is_file() and not file.name.startswith("mine") and "stderr" not in file.name:
                found[str(file)] = file.read_text("utf-8", "replace")
    return found


def check(agent: RpcProcess) -> None:
    for place, text in written_by(agent).items():
        assert leaks(text) == [], f"{leaks(text)} in {place}"


def spellings(key: str) -> list[str]:
    """What servers and tools say."""
    packed = base64.b64encode(f"user:{key}".encode()).decode()
    return [
        *(key, quote(key, safe=""), lower_escapes(key), packed, packed.replace("+", "-").replace("/", "_")),
        *(key.encode().hex(), repr(key), json.dumps({"sent": key}), f"https://u:{quote(key)}@h/?key={quote(key)}"),
    ]


@proves("secrets.output")
@pytest.mark.parametrize("provider", [*APIS, "variable", "stored", "header", "printed", "password", "parameter"])
def test_a_server_that_repeats_the_key_in_its_error_shows_it_to_nobody(
    canaries: AgentFolders, server: ModelServer, provider: str
) -> None:
    key = CANARIES.get(provider, CANARIES["models"])
    with RpcProcess(canaries, "--model", f"{provider}/m", env=VARIABLES) as agent:
        agent.ask("get_available_models")
        agent.ask("get_state")
        for text in ("; ".join(spellings(key)), "x" * 3980 + key):
            server.fails(401, text)
            agent.run("go")
        server.fails(302, "", headers={"location": f"https://elsewhere/?key={quote(key)}"})
        agent.run("go")
        agent.ask("export_html")
        shown = b"".join(agent.raw).decode()
        assert "***" in shown
        assert key[:14] not in shown, "nor where a long text is cut"
        check(agent)


@proves("secrets.address")
@pytest.mark.parametrize("url", ["http://user:{key}@127.0.0.1:1/v1", "http://[{key}/v1", "nonsense://u:{key}@h"])
def test_an_address_with_a_key_that_leads_nowhere_shows_none(folders: AgentFolders, url: str) -> None:
    key = CANARIES["password"]
    entry = {"baseUrl": url.format(key=key), "api": "anthropic-messages", "apiKey": key, "models": [model("m")]}
    folders.configure({"providers": {"x": entry}}, {"retry": {"enabled": False}})
    with RpcProcess(folders, "--model", "x/m") as agent:
        agent.run("go")
        agent.ask("get_state")
        check(agent)


@proves("secrets.found")
def test_a_tool_that_finds_the_key_shows_it_neither_to_host_nor_model_nor_file(
    canaries: AgentFolders, server: ModelServer
) -> None:
    lines = [spelling for key in CANARIES.values() for spelling in spellings(key)]
    (canaries.work / "mine.txt").write_text("\n".join([*lines, *("filling" for _ in range(3000)), *lines]))
    whole = json.dumps(CANARIES)
    (canaries.work / "mine.json").write_text(whole)
    calls = [
        Call("read", {"path": "mine.txt"}),
        Call("read", {"path": str(canaries.agent / "auth.json")}),
        Call("grep", {"pattern": "ck-", "path": "."}),
        Call("bash", {"command": "cat mine.txt"}),
        Call("bash", {"command": "cat mine.json | base64; base64 -w 0 mine.json; xxd -p mine.json 2>&1; false"}),
        Call("bash", {"command": 'for c in $(fold -w 7 mine.json); do printf %s "$c"; done'}),
        Call("bash", {"command": "printf 'ck-mod\\033[0mels+/Zq70Xw=&9_tR'"}),
        Call("edit", {"path": "mine.json", "edits": [{"oldText": '"stored"', "newText": '"other"'}]}),
    ]
    with RpcProcess(canaries, "--model", "stored/m", "--api-key", CANARIES["given"], env=VARIABLES) as agent:
        # The command that prints a key is run, and the key known, with the first request.
        agent.ask("set_model", provider="printed", modelId="m")
        server.fails(401, "no")
        agent.run("first")
        for call in calls:
            server.answers(call)
            server.answers("done")
            agent.run("go")
            assert leaks(json.dumps(server.requests[-1])) == [], call
        agent.ask("bash", command='cat mine.txt; for c in $(fold -w 5 mine.json); do printf %s "$c"; done')
        agent.ask("set_session_name", name=f"about {CANARIES['models']}")
        agent.ask("export_html")
        check(agent)
    assert json.loads((canaries.work / "mine.json").read_text())["other"] == CANARIES["stored"]


BROKEN = """
import os
from pigeon.extensions import Extension

ext = Extension("broken")

@ext.command("fail")
async def fail(arguments, ctx):
    print("my key is", os.environ["MY_OWN_VARIABLE"], flush=True)
    ctx.ui.notify("my key is " + os.environ["MY_OWN_VARIABLE"])
    raise RuntimeError("cannot use " + os.environ["MY_OWN_VARIABLE"])
"""


@proves("secrets.extension")
def test_an_extension_that_fails_with_a_key_shows_none(canaries: AgentFolders, tmp_path: Path) -> None:
    broken, silly = tmp_path / "broken.py", tmp_path / "silly.py"
    broken.write_text(BROKEN)
    silly.write_text(
        "import os, sys\nprint(os.environ['OPENAI_API_KEY'], file=sys.stderr)\n"
        + "raise ValueError(os.environ['OPENAI_API_KEY'])"
    )
    extra = {**VARIABLES, "PIGEON_DEBUG_EXTENSIONS": "1"}
    with RpcProcess(canaries, "--model", "stored/m", "-e", str(broken), env=extra) as agent:
        agent.ask("prompt", message="/fail")
        agent.wait(lambda record: record["type"] == "extension_error")
        check(agent)
    failing = RpcProcess(canaries, "--model", "stored/m", "-e", str(silly), env=extra)
    failing.close_stdin()
    failing.wait_exit()
    check(failing)
    assert "***" in failing.stderr


@proves("secrets.start")
def test_a_misspelt_option_and_a_failing_start_show_no_key(canaries: AgentFolders) -> None:
    with RpcProcess(canaries, "--model", "stored/m", f"--apikey={CANARIES['given']}", env=VARIABLES) as agent:
        agent.ask("get_state")
        assert "unknown option --apikey is ignored" in agent.stderr
        check(agent)
    failing = RpcProcess(canaries, "--model", f"none/{CANARIES['stored']}", env=VARIABLES)
    failing.close_stdin()
    assert failing.wait_exit() == 1
    assert leaks(failing.stderr) == []


@proves("secrets.commands")
def test_commands_see_no_variable_of_a_key(canaries: AgentFolders, server: ModelServer) -> None:
    with RpcProcess(canaries, "--model", "stored/m", env=VARIABLES) as agent:
        shown = agent.ask("bash", command="env")["output"]
        for name in ("MY_OWN_VARIABLE", "OTHER_VARIABLE", "OPENAI_API_KEY", "COPY_OF_IT", "PACKED"):
            assert f"{name}=" not in shown
        assert "HARMLESS=stays" in shown
        assert re.search(r"ALL_PROXY=http://me:\*\*\*@", shown), "needed, but not shown"
        # A key that a command printed is known from its first use on.
        server.fails(401, "no")
        agent.ask("set_model", provider="printed", modelId="m")
        agent.run("go")
        assert agent.ask("bash", command=f'X={shlex.quote(CANARIES["printed"])}; echo "$X"')["output"] == "***\n"


@proves("secrets.commands_kept")
def test_keys_stay_in_the_environment_where_the_user_wants_that(canaries: AgentFolders) -> None:
    settings = json.loads((canaries.agent / "settings.json").read_text())
    (canaries.agent / "settings.json").write_text(json.dumps({**settings, "keepProviderKeys": True}))
    with RpcProcess(canaries, "--model", "stored/m", env=VARIABLES) as agent:
        assert agent.ask("bash", command="echo ${#MY_OWN_VARIABLE} $MY_OWN_VARIABLE")["output"] == (
            f"{len(CANARIES['variable'])} ***\n"
        )


@proves("secrets.later")
def test_a_key_that_comes_while_the_agent_runs_is_known_with_the_next_command(canaries: AgentFolders) -> None:
    new = "ck-stored-later-55Qx9/+zz"
    with RpcProcess(canaries, "--model", "stored/m", env={**VARIABLES, "LATER": new}) as agent:
        assert "LATER=" in agent.ask("bash", command="env")["output"]
        (canaries.agent / "auth.json").write_text(json.dumps({"unheard-of": {"type": "api_key", "key": new}}))
        shown = agent.ask("bash", command=f"env; echo {shlex.quote(new)}")["output"]
        assert "LATER=" not in shown
        assert new not in shown
        assert "***" in shown


@proves("secrets.cut_output")
def test_output_that_is_full_of_keys_shows_not_even_the_rest_of_one(
    canaries: AgentFolders, server: ModelServer
) -> None:
    key = CANARIES["models"]
    rests = [key[at:] for at in range(1, len(key) - 6)]
    with RpcProcess(canaries, "--model", "stored/m", env=VARIABLES) as agent:
        for size in (300_000, 300_007):
            (canaries.work / "mine.keys").write_text(key * (size // len(key)))
            command = "cat mine.keys"
            server.answers(Call("bash", {"command": command}))
            server.answers("done")
            agent.run("go")
            assert agent.ask("bash", command=command)["truncated"] is not None
        for place, text in written_by(agent).items():
            assert not [rest for rest in rests if rest in text], place


@proves("secrets.older_session")
def test_an_older_session_with_a_key_in_it_is_exported_and_told_without(canaries: AgentFolders) -> None:
    with RpcProcess(canaries, "--model", "demo", env=VARIABLES) as agent:
        agent.run("hi")
        file = Path(agent.ask("get_state")["sessionFile"])
    file.write_text(file.read_text().replace("hi", f"my key is {CANARIES['models']}", 1))
    other = file.with_name("mine.jsonl")
    file.rename(other)
    with RpcProcess(canaries, "--model", "demo", "--session", str(other), env=VARIABLES) as agent:
        agent.ask("get_messages")
        agent.ask("get_entries")
        agent.ask("export_html")
        check(agent)
    exporting = [*command_line(), "--export", str(other), "out.html"]
    subprocess.run(exporting, cwd=canaries.work, env=canaries.environment(VARIABLES), check=True, capture_output=True)
    assert leaks((canaries.work / "out.html").read_text()) == []


@proves("secrets.answer")
def test_what_the_model_says_of_a_key_is_not_kept(canaries: AgentFolders, server: ModelServer) -> None:
    with RpcProcess(canaries, "--model", "stored/m", env=VARIABLES) as agent:
        server.answers(f"the key is {CANARIES['models']}, isn't it")
        records = agent.run("go")
        ended = [record for record in records if record["type"] in ("message_end", "agent_end")]
        assert leaks(json.dumps(ended)) == []
        assert leaks(json.dumps(agent.ask("get_last_assistant_text"))) == []
        agent.ask("export_html")
        for place, text in written_by(agent).items():
            assert place == "stdout" or leaks(text) == [], place
