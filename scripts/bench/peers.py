"""Every agent that the benchmark knows: its name, how it is pointed at the scripted model, and its commands.

Each runs in a home of its own, which has nothing but what `write_settings` puts there.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.install import NODE, ROOT, VERSIONS
from bench.model_formats import Record
from bench.model_server import TEXT

PROMPT = "please answer the question"
PIGEON = os.environ.get("PIGEON_BIN") or str(Path(sys.executable).parent / "pigeon")
# A context that no row fills, so that nobody compacts a long history.
CONTEXT = 100_000_000
# The tool server of those that have one.
SERVER = "bench"


class Peer:
    """An agent with a command that answers a prompt and ends. Subclasses fill in what is special."""

    name = ""
    title = ""
    program: tuple[str, ...] = ()
    # A folder of programs that it needs in PATH.
    path: Path | None = None

    @property
    def version(self) -> str:
        return VERSIONS.get(self.name, "")

    def is_installed(self) -> bool:
        return all(os.path.exists(part) for part in self.program if part.startswith("/"))

    def write_settings(self, home: Path, port: int) -> None:
        """Put the agent's configuration into its home."""

    def add_tool_server(self, home: Path, command: list[str]) -> bool:
        """Configure an MCP server; False if the agent has none, or none that is tried here."""
        return False

    def variables(self, port: int) -> dict[str, str]:
        return {}

    def command(self, prompt: str) -> list[str]:
        """One answer to this prompt, printed."""
        raise NotImplementedError

    def resume(self, session: str, prompt: str) -> list[str]:
        """The same in a session that exists (`histories`)."""
        raise NotImplementedError

    def shell_call(self, command: str) -> Record:
        """The call of its tool that runs a shell command."""
        return {"name": "bash", "arguments": {"command": command}}

    def server_call(self, tool: str) -> Record:
        """The call of a tool of the server that `add_tool_server` has configured."""
        return {"name": f"mcp__{SERVER}__{tool}", "arguments": {}}

    @property
    def last_reply(self) -> Record:
        """What the model answers when the work is done."""
        return {"text": TEXT}

    def environment(self, home: Path, port: int) -> dict[str, str]:
        """All variables that its processes get."""
        programs = [str(self.path)] if self.path else []
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        common = {
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "PATH": ":".join([*programs, "/usr/local/bin:/usr/bin:/bin"]),
        }
        common |= {"LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", "SHELL": "/bin/bash", "USER": "bench"}
        return common | self.variables(port)


def write(path: Path, content: str | Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def _npm(name: str, path: str) -> str:
    found = glob.glob(str(ROOT / name / "node_modules" / path))
    return found[0] if found else f"/not-installed/{name}"


def _pip(name: str, program: str) -> str:
    return str(ROOT / name / "bin" / program)


def _family_models(port: int) -> Record:
    """What pi and its family read as models file."""
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    model: Record = {"id": "bench", "name": "Bench", "contextWindow": CONTEXT, "maxTokens": 32000, "input": ["text"]}
    model |= {"reasoning": False, "cost": cost}
    provider = {"baseUrl": f"http://127.0.0.1:{port}/v1", "api": "openai-completions", "apiKey": "x", "models": [model]}
    return {"providers": {"bench": provider}}


class Pigeon(Peer):
    name = "pigeon"
    title = "Pigeon"
    program = (PIGEON,)
    options = ("--provider", "bench", "--model", "bench")

    @property
    def version(self) -> str:
        return subprocess.run([PIGEON, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]

    def write_settings(self, home: Path, port: int) -> None:
        write(home / ".pigeon/agent/models.json", _family_models(port))

    def add_tool_server(self, home: Path, command: list[str]) -> bool:
        write(home / ".pigeon/agent/mcp.json", {"mcpServers": {SERVER: {"command": command[0], "args": command[1:]}}})
        return True

    def command(self, prompt: str) -> list[str]:
        return [*self.program, *self.options, "-p", prompt]

    def resume(self, session: str, prompt: str) -> list[str]:
        return [*self.program, *self.options, "--session", session, "-p", prompt]

    def rpc(self) -> list[str]:
        return [*self.program, *self.options, "--mode", "rpc"]


class Pi(Pigeon):
    name = "pi"
    title = "pi"
    program = (str(NODE / "node"), str(ROOT / "pi/package/dist/bundle/cli.js"))
    path = NODE
    version = VERSIONS["pi"]  # type: ignore[assignment]

    def write_settings(self, home: Path, port: int) -> None:
        write(home / ".pi/agent/models.json", _family_models(port))
        write(home / ".pi/agent/settings.json", {"quietStartup": True, "compaction": {"enabled": False}})

    def add_tool_server(self, home: Path, command: list[str]) -> bool:
        return False

    def variables(self, port: int) -> dict[str, str]:
        return {"PI_OFFLINE": "1"}


class OhMyPi(Pi):
    name = "oh-my-pi"
    title = "oh-my-pi"
    program = (_npm("oh-my-pi", ".bin/omp"),)
    path = ROOT / "oh-my-pi/node_modules/.bin"
    version = VERSIONS["oh-my-pi"]  # type: ignore[assignment]

    def write_settings(self, home: Path, port: int) -> None:
        quiet = {"checkUpdate": False, "setupWizard": False, "quiet": True}
        write(home / ".omp/agent/models.yml", _family_models(port))
        write(home / ".omp/agent/config.yml", {"startup": quiet, "marketplace": {"autoUpdate": "off"}})


class Codex(Peer):
    """The program itself, without the Node.js script that npm puts in front of it."""

    name = "codex"
    title = "Codex"
    program = (_npm("codex", "@openai/codex-linux-*/vendor/*/bin/codex"),)
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")

    def write_settings(self, home: Path, port: int) -> None:
        lines = ['model = "bench"', 'model_provider = "bench"', "check_for_update_on_startup = false"]
        lines += ['approval_policy = "never"', 'sandbox_mode = "danger-full-access"']
        lines += ["[analytics]", "enabled = false", "[model_providers.bench]", 'name = "bench"']
        lines += [f'base_url = "http://127.0.0.1:{port}/v1"', 'env_key = "BENCH_KEY"', 'wire_api = "responses"']
        write(home / ".codex/config.toml", "\n".join([*lines, ""]))

    def add_tool_server(self, home: Path, command: list[str]) -> bool:
        with open(home / ".codex/config.toml", "a", encoding="utf-8") as file:
            file.write(
                f"[mcp_servers.{SERVER}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
            )
        return True

    def variables(self, port: int) -> dict[str, str]:
        return {"BENCH_KEY": "x"}

    def command(self, prompt: str) -> list[str]:
        return [*self.program, "exec", *self.options, prompt]

    def resume(self, session: str, prompt: str) -> list[str]:
        return [*self.program, "exec", *self.options, "resume", session, prompt]

    def shell_call(self, command: str) -> Record:
        return {"name": "exec_command", "arguments": {"cmd": command}}

    def server_call(self, tool: str) -> Record:
        return {"name": tool, "namespace": f"mcp__{SERVER}", "arguments": {}}


class Claude(Peer):
    name = "claude"
    title = "Claude Code"
    program = (_npm("claude", "@anthropic-ai/claude-code-linux-*64/claude"),)

    def variables(self, port: int) -> dict[str, str]:
        quiet = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        return {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": "x", "IS_SANDBOX": "1", **quiet}

    def command(self, prompt: str) -> list[str]:
        return [*self.program, "-p", "--model", "bench", "--dangerously-skip-permissions", prompt]

    def shell_call(self, command: str) -> Record:
        return {"name": "Bash", "arguments": {"command": command, "description": "work"}}


class Opencode(Peer):
    name = "opencode"
    title = "opencode"
    program = (_npm("opencode", "opencode-ai/bin/opencode.exe"),)

    def write_settings(self, home: Path, port: int) -> None:
        model = {"name": "Bench", "limit": {"context": CONTEXT, "output": 32000}}
        options = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "x"}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "bench", "options": options, "models": {"bench": model}}
        settings: Record = {
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow",
            "provider": {"bench": provider},
        }
        write(
            home / ".config/opencode/opencode.json", {**settings, "model": "bench/bench", "small_model": "bench/bench"}
        )

    def variables(self, port: int) -> dict[str, str]:
        names = ("OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_LSP_DOWNLOAD")
        return dict.fromkeys(names, "1")

    def command(self, prompt: str) -> list[str]:
        return [*self.program, "run", prompt]

    def shell_call(self, command: str) -> Record:
        return {"name": "bash", "arguments": {"command": command, "description": "work"}}

    def acp(self) -> list[str]:
        return [*self.program, "acp"]


class Gemini(Peer):
    name = "gemini"
    title = "Gemini CLI"
    program = (str(NODE / "node"), _npm("gemini", "@google/gemini-cli/bundle/gemini.js"))
    path = NODE
    options = ("-m", "gemini-2.5-flash", "--yolo")

    def write_settings(self, home: Path, port: int) -> None:
        auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        quiet = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
        update = {"general": {"enableAutoUpdate": False, "disableAutoUpdate": True}}
        write(home / ".gemini/settings.json", {**auth, **quiet, **update})

    def variables(self, port: int) -> dict[str, str]:
        address = {"GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}", "GEMINI_API_KEY": "x"}
        return {**address, "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def command(self, prompt: str) -> list[str]:
        return [*self.program, *self.options, "-p", prompt]

    def shell_call(self, command: str) -> Record:
        return {"name": "run_shell_command", "arguments": {"command": command}}

    def acp(self) -> list[str]:
        return [*self.program, *self.options, "--acp"]


class Qwen(Gemini):
    name = "qwen"
    title = "Qwen Code"
    program = (str(NODE / "node"), _npm("qwen", "@qwen-code/qwen-code/cli.js"))
    options = ("--yolo",)

    def write_settings(self, home: Path, port: int) -> None:
        super().write_settings(home, port)
        settings = json.loads((home / ".gemini/settings.json").read_text())
        settings["security"]["auth"]["selectedType"] = "openai"
        write(home / ".qwen/settings.json", settings)

    def variables(self, port: int) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "x", "OPENAI_MODEL": "bench"}

    def shell_call(self, command: str) -> Record:
        return {"name": "run_shell_command", "arguments": {"command": command, "is_background": False}}


class Copilot(Peer):
    name = "copilot"
    title = "Copilot CLI"
    program = (_npm("copilot", ".bin/copilot"),)
    path = NODE

    def variables(self, port: int) -> dict[str, str]:
        model = {"COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{port}/v1", "COPILOT_PROVIDER_API_KEY": "x"}
        return {**model, "COPILOT_MODEL": "bench", "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"}

    def command(self, prompt: str) -> list[str]:
        return [*self.program, "-p", prompt, "--allow-all-tools"]

    def shell_call(self, command: str) -> Record:
        return {"name": "bash", "arguments": {"command": command, "description": "work", "mode": "sync"}}

    def acp(self) -> list[str]:
        return [*self.program, "--acp", "--allow-all-tools"]


class Cline(Peer):
    name = "cline"
    title = "Cline"
    program = (_npm("cline", "@cline/cli-linux-*64/bin/cline"),)

    def write_settings(self, home: Path, port: int) -> None:
        address = f"http://127.0.0.1:{port}/v1"
        command = [*self.program, "auth", "-p", "openai-compatible", "-k", "x", "-m", "bench", "-b", address]
        _run_quietly(command, self.environment(home, port))

    def command(self, prompt: str) -> list[str]:
        return [*self.program, prompt]

    def shell_call(self, command: str) -> Record:
        return {"name": "run_commands", "arguments": {"commands": [command]}}


class Tau(Peer):
    name = "tau"
    title = "tau"
    program = (_pip("tau", "tau"),)

    def write_settings(self, home: Path, port: int) -> None:
        model = ["--provider", "bench", "--model", "bench", "--base-url", f"http://127.0.0.1:{port}/v1"]
        command = [*self.program, *model, "--api-key-env", "OPENAI_API_KEY", "setup"]
        _run_quietly(command, self.environment(home, port))

    def variables(self, port: int) -> dict[str, str]:
        return {"OPENAI_API_KEY": "x"}

    def command(self, prompt: str) -> list[str]:
        return [*self.program, "-p", prompt]

    def rpc(self) -> list[str]:
        return [*self.program, "--mode", "rpc"]


class Vibe(Peer):
    name = "vibe"
    title = "Mistral Vibe"
    program = (_pip("vibe", "vibe"),)

    def write_settings(self, home: Path, port: int) -> None:
        lines = ['active_model = "bench"', "enable_telemetry = false", "enable_update_checks = false"]
        lines += [
            "enable_auto_update = false",
            "[[providers]]",
            'name = "bench"',
            f'api_base = "http://127.0.0.1:{port}/v1"',
        ]
        lines += ['api_key_env_var = "BENCH_KEY"', 'api_style = "openai"', 'backend = "generic"']
        lines += ["[[models]]", 'name = "bench"', 'provider = "bench"', 'alias = "bench"']
        write(home / ".vibe/config.toml", "\n".join([*lines, ""]))

    def variables(self, port: int) -> dict[str, str]:
        return {"BENCH_KEY": "x"}

    def command(self, prompt: str) -> list[str]:
        return [*self.program, "--trust", "--auto-approve", "-p", prompt]

    def acp(self) -> list[str]:
        return [_pip("vibe", "vibe-acp")]


class Mini(Peer):
    """It has no answer without a tool: it ends with a command that says so."""

    name = "mini"
    title = "mini-swe-agent"
    program = (_pip("mini", "mini"),)

    def variables(self, port: int) -> dict[str, str]:
        quiet = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
        address = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
        return {**quiet, **address, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    def command(self, prompt: str) -> list[str]:
        return [*self.program, "-m", "openai/bench", "-t", prompt, "-y", "--exit-immediately"]

    @property
    def last_reply(self) -> Record:
        return {"text": TEXT, "calls": [self.shell_call(f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {TEXT}")]}


class Aider(Peer):
    """It has no tools; it is only asked for answers."""

    name = "aider"
    title = "aider"
    program = (_pip("aider", "aider"),)

    def variables(self, port: int) -> dict[str, str]:
        address = {"OPENAI_API_KEY": "x", "OPENAI_API_BASE": f"http://127.0.0.1:{port}/v1"}
        return {**address, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    def command(self, prompt: str) -> list[str]:
        quiet = ["--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update", "--analytics-disable"]
        return [*self.program, "--model", "openai/bench", *quiet, "--message", prompt]

    def shell_call(self, command: str) -> Record:
        raise NotImplementedError


def _run_quietly(command: list[str], variables: dict[str, str]) -> Any:
    return subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
    )


ALL: list[Peer] = [
    *(Pigeon(), Codex(), Claude(), Opencode(), Gemini(), Qwen(), Copilot(), Cline()),
    *(Pi(), OhMyPi(), Tau(), Vibe(), Mini(), Aider()),
]
BY_NAME = {peer.name: peer for peer in ALL}
