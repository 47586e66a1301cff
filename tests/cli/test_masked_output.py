"""No command prints a key, wherever it stands in the user's configuration, and whatever goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.agent_folders import AgentFolders
from support.agent_process import run_pigeon

# Nothing listens at port 9, so every command that connects reports the address. The last is known by other means.
ADDRESSES = ("http://user:{}@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?api_key={}", "http://127.0.0.1:9/{}/v1")
# A password may be short; a key that stands anywhere else is known only if it is distinctive.
SECRETS = ("pw{}!", "Zq9-secret-{}-77aB")
COMMANDS = (
    ("doctor", "--json"),
    ("doctor",),
    ("models",),
    ("models", "--json"),
    ("--list-models",),
    ("config",),
    ("config", "--json"),
    ("config", "get", "httpProxy"),
    ("config", "set", "httpProxy", "http://user:pw-new!@127.0.0.1:9"),
    ("mcp", "list"),
    ("mcp", "list", "--json"),
    ("mcp", "test", "server-0"),
    ("mcp", "test", "option-0"),
    ("mcp", "test", "short"),
    ("mcp", "test", "whole"),
    ("mcp", "test", "nothing"),
    ("mcp", "add", "again", "https://user:pw-new!@h/"),
    ("mcp", "remove", "server-1"),
    ("sessions",),
    ("-p", "hello", "--model", "provider-0/m"),
    ("-p", "hello", "--model", "provider-1/m", "--verbose"),
    ("-p", "hello", "--model", "provider-2/m"),
    ("--mode", "json", "hello", "--model", "provider-0/m"),
)


class Configuration:
    """Files with a different key at every place where one may stand."""

    def __init__(self) -> None:
        self.secrets: list[str] = ["pw-new!"]
        addresses = [(address, form) for form in SECRETS[::-1] for address in ADDRESSES[: 2 + (form == SECRETS[1])]]
        self.variables = {}
        self.providers: dict[str, Any] = {}
        self.servers: dict[str, Any] = {}
        for number, (address, form) in enumerate(addresses):
            secret = self.make_secret(form)
            key = secret if "{}/" in address else "none"
            models = [{"id": "m", "contextWindow": 1000}]
            entry = {"api": "openai-completions", "apiKey": key, "baseUrl": address.format(secret), "models": models}
            self.providers[f"provider-{number}"] = entry
            secret = self.make_secret(form)
            self.servers[f"server-{number}"] = {"url": address.format(secret)}
            if "{}/" in address:
                self.variables["OPENAI_API_KEY"] = secret
            else:
                secret = self.make_secret(form)
                self.servers[f"program-{number}"] = {"command": "/nowhere", "args": [address.format(secret)]}
        for number, to_args in enumerate(
            (
                lambda key: ["--api-key", key],
                lambda key: [f"--token={key}"],
                lambda key: ["--header", f"Authorization: Bearer {key}"],
            )
        ):
            self.servers[f"option-{number}"] = {"command": "/nowhere", "args": to_args(self.make_secret(SECRETS[1]))}
        # By their names, even short values are known.
        short = ["--pass", self.make_secret(SECRETS[0]), f"--password={self.make_secret(SECRETS[0])}"]
        self.servers["short"] = {"command": "/nowhere", "args": short}
        self.servers["whole"] = {"command": f"/nowhere --api-key {self.make_secret(SECRETS[1])}"}
        self.servers["header"] = {"url": ADDRESSES[0], "headers": {"X-Key": self.make_secret(SECRETS[1])}}
        self.servers["wrong"] = {"url": f"htp://user:{self.make_secret(SECRETS[0])}@h"}
        self.settings = {
            "retry": {"enabled": False},
            "httpProxy": f"http://user:{self.make_secret(SECRETS[0])}@127.0.0.1:9",
        }

    def make_secret(self, form: str) -> str:
        self.secrets.append(form.format(len(self.secrets)))
        return self.secrets[-1]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_a_key_of_the_configuration(tmp_path: Path, command: tuple[str, ...]) -> None:
    files = Configuration()
    folders = AgentFolders(tmp_path)
    folders.configure({"providers": files.providers}, files.settings)
    (folders.agent / "mcp.json").write_text(json.dumps({"mcpServers": files.servers}))
    result = run_pigeon(folders, *command, env={**files.variables, "NO_PROXY": "127.0.0.1"})
    printed = result.out + result.err
    assert printed
    shown = [secret for secret in files.secrets if secret in printed]
    assert shown == [], printed


@pytest.mark.parametrize("number", range(5))
def test_no_trace_recording_or_session_has_a_key_of_the_base_url(tmp_path: Path, number: int) -> None:
    files = Configuration()
    folders = AgentFolders(tmp_path)
    folders.configure({"providers": files.providers}, {"retry": {"enabled": False}})
    trace, recording = tmp_path / "trace", tmp_path / "recording"
    options = ["--model", f"provider-{number}/m", "--trace", str(trace), "--record", str(recording)]
    run_pigeon(folders, "--mode", "json", "hello", *options)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("models.json", "mcp.json")]
    assert {trace, recording} <= set(written)
    for path in written:
        text = path.read_text("utf-8", "replace")
        assert [secret for secret in files.secrets if secret in text] == [], path
