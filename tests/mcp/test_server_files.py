"""The forms of `mcp.json`, and what becomes of wrong ones: only looked at, nothing is started."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pigeon.mcp.server_config import InputQuestion, ServerConfig, WrongServer, parse_server, parse_servers
from pigeon.mcp.server_files import ServerLayers, merge_servers, project_files, read_servers
from pigeon.mcp.tool_names import make_distinct_names, make_full_name
from pigeon.mcp.variables import Surroundings
from pigeon.secrets.redactor import Redactor

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
FIELDS = (
    "command", "args", "env", "url", "headers", "type", "cwd", "timeout", "oauth", "disabled", "envFile",
    "includeTools", "excludeTools", "transport", "bearerToken", "startupTimeoutMs",
)  # fmt: skip


def read(value: Any) -> tuple[dict[str, ServerConfig], list[str]]:
    problems: list[str] = []
    return {one.name: one for one in parse_servers(value, "user", "mcp.json", problems.append)}, problems


def test_the_form_of_claude_code() -> None:
    servers, problems = read(
        {
            "mcpServers": {
                "github": {"command": "npx", "args": ["-y", "gh-mcp"], "env": {"TOKEN": "${GH_TOKEN}"}},
                "docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "$KEY"}},
                "old": {"type": "sse", "url": "https://example.com/sse"},
            }
        }
    )
    assert problems == []
    assert [(one.transport, one.problem) for one in servers.values()] == [
        ("stdio", None),
        ("http", None),
        ("sse", None),
    ]
    assert servers["github"].args == ("-y", "gh-mcp")


def test_the_form_of_vs_code_with_inputs() -> None:
    servers, problems = read(
        {
            "inputs": [{"type": "promptString", "id": "key", "description": "The key", "password": True}],
            "servers": {
                "one": {
                    "type": "stdio",
                    "command": "node",
                    "args": ["${workspaceFolder}/s.js"],
                    "env": {"K": "${input:key}"},
                },
                "two": {"type": "http", "url": "https://example.com"},
            },
        }
    )
    assert problems == []
    answers: dict[str, str] = {}
    around = Surroundings({}, "/work", "/home/me", answers, lambda name: False, lambda text: False)
    assert around.find_needed_questions(servers["one"]) == {"key": InputQuestion("The key")}
    answers["key"] = "123"
    filled = around.fill_in_config(servers["one"])
    assert (filled.args, filled.env, around.find_needed_questions(servers["one"])) == (
        ("/work/s.js",),
        {"K": "123"},
        {},
    )


def test_the_form_of_pi() -> None:
    servers, problems = read(
        {
            "settings": {"toolPrefix": "server"},
            "mcpServers": {
                "lazy": {"command": "x", "lifecycle": "lazy", "requestTimeoutMs": 30000, "excludeTools": ["rm*"]},
                "bearer": {"url": "https://example.com", "auth": "bearer", "bearerTokenEnv": "TOKEN"},
                "off": {"command": "x", "disabled": True},
            },
        }
    )
    assert problems == []
    assert (servers["lazy"].call_seconds, servers["lazy"].without_tools) == (30.0, ("rm*",))
    assert servers["bearer"].headers == {"Authorization": "Bearer ${TOKEN}"}
    assert servers["off"].enabled is False


def test_servers_without_a_list_around_them_are_taken_too() -> None:
    assert list(read({"one": {"command": "x"}, "two": {"url": "http://y"}})[0]) == ["one", "two"]
    assert read({"mcp": {"servers": {"one": {"command": "x"}}}})[0].keys() == {"one"}
    servers, problems = read({"something": {"else": 1}})
    assert (servers, len(problems)) == ({}, 1)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (7, "must be an object"),
        ({}, "needs command"),
        ({"command": "x", "url": "http://y"}, "both command and url"),
        ({"command": "x", "args": "y"}, "args must be a list"),
        ({"command": "x", "env": ["A"]}, "env must be an object"),
        ({"command": "x", "type": "http"}, "does not fit"),
        ({"url": "http://y", "type": "carrier pigeon"}, "the known types are stdio, http and sse"),
        ({"url": "http://y", "headers": {"a b": "c"}}, "not a valid header name"),
        ({"command": "x", "timeout": "soon"}, "milliseconds"),
        ({"command": "x\0y"}, "NUL"),
    ],
)
def test_a_wrong_server_says_what_is_wrong_with_it(entry: Any, said: str) -> None:
    good = {"command": "x"}
    servers, _ = read({"mcpServers": {"bad": entry, "good": good}})
    assert said in str(servers["bad"].problem)
    assert servers["good"].problem is None


@pytest.mark.parametrize("name", ["", " ", "a" * 200, "tab\there", "!!!"])
def test_a_name_of_which_no_tool_name_can_be_made_is_wrong(name: str) -> None:
    assert parse_server(name, {"command": "x"}, "host").problem is not None


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=8))
def test_no_entry_makes_the_reading_fail(entry: dict[str, Any]) -> None:
    config = parse_server("x", entry, "user")
    assert config.problem is not None or config.transport is not None or not config.enabled


@given(ANYTHING)
def test_no_file_makes_the_reading_fail(value: Any) -> None:
    read(value)
    read({"mcpServers": value})
    read({"servers": value, "inputs": value})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A", "1"),
        ("${A}", "1"),
        ("${env:A}", "1"),
        ("x-$A-$A", "x-1-1"),
        ("${NONE:-there}", "there"),
        ("${EMPTY:-there}", "there"),
        ("${NONE:-}", ""),
        ("$$A", "$A"),
        ("100%", "100%"),
        ("${workspaceFolder}/x", "/work/x"),
    ],
)
def test_variables_are_filled_in(text: str, value: str) -> None:
    around = Surroundings({"A": "1", "EMPTY": ""}, "/work", "/home/me", {}, lambda name: False, lambda text: False)
    config = parse_server("x", {"command": "y", "args": [text], "env": {"E": text}}, "user")
    assert (around.fill_in_config(config).args, around.fill_in_config(config).env) == ((value,), {"E": value})


def test_a_missing_variable_is_named() -> None:
    around = Surroundings({}, "/work", "/home/me", {}, lambda name: False, lambda text: False)
    with pytest.raises(WrongServer, match=r"headers.K names the variable NONE, which is not set"):
        around.fill_in_config(parse_server("x", {"url": "http://y", "headers": {"K": "Bearer $NONE"}}, "user"))


def test_a_project_gets_no_key_of_a_model_provider_and_the_user_does() -> None:
    variables = {"OPENAI_API_KEY": "k"}
    around = Surroundings(variables, "/work", "/h", {}, lambda name: name in variables, lambda text: False)
    entry = {"command": "y", "env": {"E": "$OPENAI_API_KEY"}}
    assert around.fill_in_config(parse_server("x", entry, "user")).env == {"E": "k"}
    with pytest.raises(WrongServer, match="files of projects cannot use it"):
        around.fill_in_config(parse_server("x", entry, "project"))


KEY = "sk-proj-Zq9secret77aBcD"
PLACES = {
    "env": lambda value: {"command": "y", "env": {"E": value}},
    "args": lambda value: {"command": "y", "args": ["-k", value]},
    "one of args": lambda value: {"command": "y", "args": [f"--key={value}!"]},
    "command": lambda value: {"command": f"/bin/{value}"},
    "cwd": lambda value: {"command": "y", "cwd": f"/tmp/{value}"},
    "url": lambda value: {"url": f"https://h/{value}/mcp"},
    "headers": lambda value: {"url": "https://h/", "headers": {"A": f"Bearer {value}"}},
    "oauth": lambda value: {"url": "https://h/", "oauth": {"clientSecret": value}},
}
# Ways to get the key without its own variable, with the variables that they need.
WAYS = {
    "copy": ("${COPY}", {"COPY": KEY}),
    "in a longer text": ("${LONG}", {"LONG": f"a={KEY};b"}),
    "base64": ("$BASED", {"BASED": b64encode(f"user:{KEY}".encode()).decode()}),
    "two halves": ("${ONE}${TWO}", {"ONE": KEY[:12], "TWO": KEY[12:]}),
    "as a default": ("${NOTHING:-" + KEY + "}", {}),
    "written out": (KEY, {}),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_a_project_gets_a_key_of_a_model_provider_in_no_way(place: str, way: str) -> None:
    redactor = Redactor()
    text, variables = WAYS[way]
    variables = {"OPENAI_API_KEY": KEY, **variables}
    redactor.add_variables_source(variables, {"OPENAI_API_KEY"})
    around = Surroundings(variables, "/work", "/h", {}, redactor.is_secret_variable, redactor.has_provider_key)
    entry = PLACES[place](text)
    around.fill_in_config(parse_server("x", entry, "user"))
    with pytest.raises(WrongServer, match="files of projects cannot use it") as raised:
        around.fill_in_config(parse_server("x", entry, "project"))
    assert KEY not in str(raised.value)


def test_a_file_of_variables_brings_a_project_no_key_and_other_secrets_stay_allowed(tmp_path: Path) -> None:
    redactor = Redactor()
    variables = {"OPENAI_API_KEY": KEY, "GITHUB_TOKEN": "ghp-other-secret-1", "HTTPS_PROXY": "http://u:proxy-pass-1@h"}
    redactor.add_variables_source(variables, {"OPENAI_API_KEY"})
    redactor.learn_keys([("token", "ghp-other-secret-1")])
    around = Surroundings(variables, str(tmp_path), "/h", {}, redactor.is_secret_variable, redactor.has_provider_key)
    allowed = {"command": "y", "env": {"T": "$GITHUB_TOKEN", "P": "$HTTPS_PROXY"}}
    assert around.fill_in_config(parse_server("x", allowed, "project")).env["T"] == "ghp-other-secret-1"
    (tmp_path / ".env").write_text(f"MY_KEY={KEY}\n")
    with pytest.raises(WrongServer, match=r"env.MY_KEY contains a key"):
        around.fill_in_config(parse_server("x", {"command": "y", "envFile": ".env"}, "project"))


def test_values_of_a_host_are_meant_as_they_are_where_no_variable_fits() -> None:
    around = Surroundings({"A": "1"}, "/work", "/h", {}, lambda name: False, lambda text: False)
    entry = {"command": "y", "env": {"P": "pa$$w$rd", "Q": "$A"}}
    assert around.fill_in_config(parse_server("x", entry, "host")).env == {"P": "pa$$w$rd", "Q": "1"}


def test_files_lie_over_each_other_and_an_entry_may_only_switch_off(tmp_path: Path) -> None:
    for path, servers in {
        ".mcp.json": {"a": {"command": "shared"}, "b": {"command": "shared"}},
        ".pi/mcp.json": {"b": {"disabled": True}},
        ".pigeon/mcp.json": {"a": {"command": "ours"}},
    }.items():
        place = tmp_path / path
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps({"mcpServers": servers}))
    problems: list[str] = []
    layers = [read_servers(path, "project", problems.append) for path in project_files(str(tmp_path))]
    found = {one.name: one for one in merge_servers(layers)}
    assert (found["a"].command, found["b"].command, found["b"].enabled) == ("ours", "shared", False)
    assert problems == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be an object"),
        ('{"mcpServers": []}', "must be an object"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "appears twice"),
        (" " * 9_000_000, ""),
        ('{"mcpServers": {' + ",".join(f'"s{n}": {{"command": "x"}}' for n in range(150)) + "}}", "150 servers"),
    ],
    ids=["cut", "list", "servers as list", "twice", "too large", "too many"],
)
def test_a_wrong_file_is_reported_with_its_path(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(content)
    problems: list[str] = []
    found = read_servers(str(path), "user", problems.append)
    assert len(found) <= 100
    assert [problem for problem in problems if problem.startswith(str(path)) and said in problem]


def test_a_file_with_comments_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{ // servers\n "mcpServers": {"a": {"command": "x",},},\n}')
    assert [one.name for one in read_servers(str(path), "user", pytest.fail)] == ["a"]


def test_names_of_tools_are_short_and_distinct() -> None:
    assert make_full_name("git hub", "list.issues") == "mcp__git_hub__list_issues"
    long = make_full_name("server", "x" * 100)
    assert len(long) == 64
    names = make_distinct_names("s", ["a.b", "a_b", "a b"])
    assert len(set(names.values())) == 3
    claimed = make_distinct_names("a", ["b__c", "b_c"], ["a", "a__b"])
    assert claimed["b_c"] == "mcp__a__b_c"
    assert claimed["b__c"].startswith("mcp__a__b_c_")
    assert make_distinct_names("a__b", ["c"], ["a", "a__b"]) == {"c": "mcp__a__b__c"}
    assert {one.problem is None for one in merge_servers([[parse_server("a b", {"command": "x"}, "user")]])} == {True}
    clash = merge_servers([[parse_server(name, {"command": "x"}, "user") for name in ("a b", "a_b")]])
    assert [one.problem is None for one in clash] == [True, False]


def test_the_servers_of_the_host_replace_those_of_files_and_moving_is_noticed(tmp_path: Path) -> None:
    agent, project = tmp_path / "agent", tmp_path / "project"
    agent.mkdir()
    project.mkdir()
    (agent / "mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}))
    (project / ".mcp.json").write_text("[")
    problems: list[str] = []
    layers = ServerLayers(str(agent), ("a",), problems.append)
    assert not layers.read_files(str(project), trusted=True)
    assert [one.name for one in layers.merged_servers()] == ["a"]
    assert layers.problems == problems != []
    layers.set_host_servers({"a": {"command": "host"}, "c": {"command": "c"}})
    assert [(one.name, one.source) for one in layers.merged_servers()] == [("a", "host"), ("c", "host")]
    assert not layers.read_files(str(project), trusted=False)
    assert layers.problems == []
    assert layers.read_files(str(agent), trusted=False)
