"""Permissions: which rule applies, what is asked, and that every doubt is a no."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.tool_run import PlainFitter, call_tool, paths_in, prepare_call, subject_of, text_of
from pigeon.agent.inference import ToolSpec
from pigeon.agent.interfaces import ArgumentTool, PreparedCall, ToolRun
from pigeon.agent.scope import Scope
from pigeon.permissions.gate import PermissionGate, PermissionQuestion, make_visible, outcome_of
from pigeon.permissions.gate_chain import chain_gates
from pigeon.permissions.protected import ProtectedPlaces
from pigeon.permissions.rules import PermissionLayers, build_layers, ruling_of
from pigeon.system.paths import PathResolver
from pigeon.tools.read import ReadTool
from pigeon.wire.base import Json
from pigeon.wire.content import ToolCall
from pigeon.wire.dialogs import ALLOW_ALWAYS, ALLOW_ONCE, DENY
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import PermissionOutcome, ToolOutcome

CWD = "/work/project"
PATHS = PathResolver(CWD, "/home/me")
NOTHING = ProtectedPlaces([], ["/home/me"], {})


def rules_from(user: Any, project: Any = None) -> tuple[PermissionLayers, list[str]]:
    """The rules, and what was reported."""
    problems: list[str] = []
    return build_layers(user, project, "yolo", problems.append), problems


def verdict(rules: PermissionLayers, tool: str, arguments: dict[str, Any], paths: PathResolver = PATHS) -> str:
    subject = subject_of(tool, arguments, paths)
    try:
        return ruling_of(rules, tool, subject, paths).verdict
    finally:
        subject.close()


def verdict_of(setting: dict[str, Any], tool: str, **arguments: Any) -> str:
    rules, problems = rules_from(setting)
    assert problems == []
    return verdict(rules, tool, arguments)


@pytest.mark.parametrize(
    ("rule", "command", "denied"),
    [
        ("bash", "ls", True),
        ("bash(*)", "ls", True),
        ("bash(rm *)", "rm x", True),
        ("bash(rm *)", "rm  -rf   x", True),
        ("bash(rm *)", "ls && rm x", True),
        ("bash(rm *)", "ls; rm x", True),
        ("bash(rm *)", "ls | rm x", True),
        ("bash(rm *)", "ls\nrm x", True),
        ("bash(rm *)", "(rm x)", True),
        ("bash(rm *)", "echo $(rm x)", True),
        ("bash(rm *)", "echo `rm x`", True),
        ("bash(rm *)", "diff <(rm x) y", True),
        ("bash(rm *)", "sleep 1 & rm x", True),
        ("bash(rm *)", "A=1 B=2 rm x", True),
        ("bash(rm *)", "farm x", False),
        ("bash(rm *)", "echo rm", False),
        ("bash(git push*)", "git push --force", True),
        ("bash(git push*)", "git pull", False),
        ("bash(*secret*)", "cat my/secret/file", True),
        ("b*(ls)", "ls", True),
        ("read(ls)", "ls", False),
    ],
)
def test_a_command_is_matched_whole_and_piece_by_piece(rule: str, command: str, denied: bool) -> None:
    assert (verdict_of({"deny": [rule]}, "bash", command=command) == "deny") is denied


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git status", "allow"),
        ("git log | git diff", "allow"),
        ("git status && rm x", "ask"),
        ("git status; curl x | sh", "ask"),
        ("git log $(rm x)", "ask"),
        ("", "ask"),
    ],
)
def test_an_allowance_covers_a_command_only_as_a_whole(command: str, verdict: str) -> None:
    assert verdict_of({"allow": ["bash(git *)"], "default": "ask"}, "bash", command=command) == verdict


@pytest.mark.parametrize(
    ("rule", "path", "denied"),
    [
        ("write(.env)", ".env", True),
        ("write(.env)", "deep/below/.env", True),
        ("write(.env)", "./x/../.env", True),
        ("write(.env)", "@.env", True),
        ("write(.env)", f"{CWD}/.env", True),
        ("write(.env)", f"file://{CWD}/.env", True),
        ("write(.env)", "/elsewhere/.env", True),
        ("write(.env)", ".envrc", False),
        ("write(*.pem)", "keys/a.pem", True),
        ("write(.git)", ".git/hooks/pre-commit", True),
        ("write(.git/**)", ".git/config", True),
        ("write(.git/**)", ".git", True),
        ("write(.git/**)", "sub/.git/config", False),
        ("write(**/.git/**)", "sub/.git/config", True),
        ("write(**/.git/**)", "/elsewhere/.git/config", True),
        ("write(sub/.git/**)", "/sub/.git/config", False),
        ("write(src/*.py)", "src/a.py", True),
        ("write(src/*.py)", "src/deep/a.py", False),
        ("write(src/**/*.py)", "src/deep/a.py", True),
        ("write(/etc/**)", "/etc/passwd", True),
        ("write(/etc/**)", "../../etc/passwd", True),
        ("write(/etc/**)", "etc/passwd", False),
        ("write(~/.ssh/**)", "~/.ssh/id", True),
        ("write(secrets/)", "secrets/x", True),
        ("write(ab?.txt)", "abc.txt", True),
        ("edit(.env)", ".env", False),
    ],
)
def test_a_path_is_matched_however_it_is_spelled(rule: str, path: str, denied: bool) -> None:
    assert (verdict_of({"deny": [rule]}, "write", path=path, content="x") == "deny") is denied


def test_a_path_is_matched_by_where_it_really_leads(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "open").symlink_to("secret")
    rules, _ = rules_from({"deny": ["read(secret/**)"], "allow": ["read(open/**)"], "default": "ask"})
    assert verdict(rules, "read", {"path": "open/x"}, paths_in(tmp_path)) == "deny"
    other, _ = rules_from({"allow": ["read(open/**)"], "default": "ask"})
    assert verdict(other, "read", {"path": "open/x"}, paths_in(tmp_path)) == "ask"


ODD_SPACE = st.sampled_from(["\u00a0", "\u2009", "\u202f", "\u3000"])
NAMES = ["Anna\u2019s.txt", "caf\u00e9.txt", "Shot at 9.41\u202fAM.png", "a b.txt", "plain.txt", "@at.txt"]


@st.composite
def spellings(draw: st.DrawFn, name: str) -> str:
    """Another way to write a path in the working directory, which ROOT stands for."""
    path = name
    if draw(st.booleans()):
        path = path.replace("\u2019", "'")
    if draw(st.booleans()):
        path = re.sub("[ \u202f]", lambda _: draw(ODD_SPACE) if draw(st.booleans()) else " ", path)
    path = unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD"])), path)
    sign = draw(st.sampled_from(["", "@"]))
    if draw(st.booleans()):
        return f"{sign}file://ROOT/./{path}".replace(" ", draw(st.sampled_from([" ", "%20"])))
    return sign + draw(st.sampled_from(["", "./", "x/../", "ROOT/", "~/"])) + path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(NAMES), st.sampled_from(["NFC", "NFD"]))
def test_a_denied_file_is_denied_in_every_spelling_that_the_tool_opens(
    tmp_path: Path, data: st.DataObject, name: str, form: Any
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        Path(folder, unicodedata.normalize(form, name)).write_text("secret")
        spelled = data.draw(spellings(name)).replace("ROOT", folder)
        paths = paths_in(folder, home=folder)
        rules, _ = rules_from({"deny": [f"read({unicodedata.normalize('NFC', name)})"]})
        with paths.hold_path(spelled) as held:
            found = os.path.exists(held.place)
        if found:
            assert verdict(rules, "read", {"path": spelled}, paths) == "deny", spelled


@pytest.mark.parametrize(
    ("name", "rule", "asked"),
    [
        ("Anna\u2019s.txt", "Anna\u2019s.txt", "Anna's.txt"),
        ("Anna\u2019s.txt", "Anna's.txt", "Anna\u2019s.txt"),
        ("cafe\u0301.txt", "caf\u00e9.txt", "cafe\u0301.txt"),
        ("cafe\u0301.txt", "cafe\u0301.txt", "caf\u00e9.txt"),
        ("9.41\u202fAM.png", "9.41\u202fAM.png", "9.41 AM.png"),
        ("secret.txt", "secret.txt", "@file://HERE/secret.txt"),
        ("secret.txt", "HERE/secret.txt", "@~/secret.txt"),
        ("secret.txt", "~/secret.txt", "@secret.txt"),
    ],
)
async def test_a_denied_file_is_not_read_under_another_spelling(
    tmp_path: Path, name: str, rule: str, asked: str
) -> None:
    (tmp_path / name).write_text("secret")
    paths = paths_in(tmp_path, home=str(tmp_path))
    asked, rule = asked.replace("HERE", str(tmp_path)), rule.replace("HERE", str(tmp_path))
    assert text_of(await call_tool(ReadTool(paths, PlainFitter()), path=asked)) == "secret"
    rules, _ = rules_from({"deny": [f"read({rule})"]})
    assert verdict(rules, "read", {"path": asked}, paths) == "deny"


def test_an_allowance_needs_the_path_as_it_is_written_and_as_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "Anna\u2019s.txt").touch()
    (tmp_path / "plain.txt").touch()
    rules, _ = rules_from({"allow": ["read(Anna's.txt)", "read(plain.txt)"], "default": "ask"})
    asked = ["Anna's.txt", "plain.txt", "@plain.txt"]
    verdicts = [verdict(rules, "read", {"path": path}, paths_in(tmp_path)) for path in asked]
    assert verdicts == ["ask", "allow", "ask"]


def test_the_working_directory_itself_can_be_named() -> None:
    assert verdict_of({"deny": ["ls(.)"]}, "ls") == "deny"
    assert verdict_of({"deny": [f"ls({CWD})"]}, "ls") == "deny"
    assert verdict_of({"deny": ["ls(src)"]}, "ls") == "allow"


def test_a_path_that_no_file_can_have_is_matched_as_it_is_written() -> None:
    assert verdict_of({"deny": ["deploy(a*)"]}, "deploy", path="a\0b") == "deny"
    assert verdict_of({"deny": ["deploy(b*)"]}, "deploy", path="a\0b") == "allow"


@pytest.mark.parametrize("rule", ["*rm*-rf*/*", "*a*a*a*a*a*a*a*b", "*" * 50 + "b", "?" * 300 + "*b*b*b"])
def test_a_rule_for_commands_takes_no_time_however_long_the_command_is(rule: str) -> None:
    commands = ["rm -rf a " * 2_300 + "b", "a" * 21_000, "rm -r" * 4_000, "A=1 " * 5_000 + "-"]
    began = time.process_time()
    for command in commands:
        verdict_of({"deny": [f"bash({rule})"], "allow": [f"bash({rule})"]}, "bash", command=command)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("rule", ["**a*b**c", "**/*a*/**/b", "a**a**a**a**ab", "/**a*a*a*a*b", "*a*a*a*a*ab"])
def test_a_rule_for_paths_takes_no_time_however_long_the_path_is(rule: str) -> None:
    began = time.process_time()
    for path in ("a" * 21_000, "a/" * 1_000 + "c", "ab/" * 1_000 + "a" * 3_000):
        verdict_of({"deny": [f"deploy({rule})"]}, "deploy", path=path)
    assert time.process_time() - began < 3


def test_other_tools_are_matched_by_name_and_by_argument() -> None:
    assert verdict_of({"deny": ["fetch(url=https://evil.*)"]}, "fetch", url="https://evil.example/x") == "deny"
    assert verdict_of({"deny": ["fetch(url=https://evil.*)"]}, "fetch", url="https://good.example/") == "allow"
    assert verdict_of({"ask": ["host_*"]}, "host_deploy", stage="live") == "ask"
    assert verdict_of({"ask": ["deploy(live)"]}, "deploy", stage="live", n=1) == "ask"
    assert verdict_of({"allow": ["deploy(live)"], "default": "deny"}, "deploy", stage="live", n=1) == "deny"


def test_deny_is_stronger_than_ask_and_ask_than_allow() -> None:
    every = {"deny": ["bash(rm *)"], "ask": ["bash(rm *)", "bash(git *)"], "allow": ["bash"], "default": "deny"}
    assert verdict_of(every, "bash", command="rm x") == "deny"
    assert verdict_of(every, "bash", command="git x") == "ask"
    assert verdict_of(every, "bash", command="ls") == "allow"
    assert verdict_of(every, "read", path="x") == "deny"


def test_without_the_setting_there_are_no_rules() -> None:
    assert rules_from(None) == (PermissionLayers(), [])
    assert verdict_of({}, "bash", command="rm -rf /") == "allow"


@pytest.mark.parametrize(
    "setting",
    [[], "deny", 5, {"deny": "bash"}, {"deny": [5]}, {"ask": ["bash("]}, {"default": "maybe"}, {"forbid": []},
     {"timeoutMs": 0}, {"timeoutMs": True}],
)  # fmt: skip
def test_a_setting_that_cannot_be_understood_is_told_and_makes_everything_a_question(setting: Any) -> None:
    rules, problems = rules_from(setting)
    assert problems
    assert verdict(rules, "bash", {"command": "ls"}, PATHS) == "ask"


def test_a_project_can_forbid_but_not_allow() -> None:
    rules, problems = rules_from(
        {"deny": ["bash(rm *)"], "default": "ask"},
        {"allow": ["bash"], "deny": ["write"], "ask": [], "default": "allow"},
    )
    assert problems == []
    assert [verdict(rules, "bash", {"command": c}, PATHS) for c in ("rm x", "ls")] == ["deny", "ask"]
    assert verdict(rules, "write", {"path": "x"}, PATHS) == "deny"


@given(st.text(), st.text(), st.text())
def test_no_rule_and_no_call_makes_it_fail(rule: str, command: str, path: str) -> None:
    rules, _ = rules_from({"deny": [rule, f"bash({rule})", f"read({rule})"], "allow": [f"bash({rule})"]})
    verdict(rules, "bash", {"command": command})
    verdict(rules, "deploy", {"path": path, "command": command})


def test_a_foreign_tool_is_matched_by_every_argument_however_deep() -> None:
    deep = {"options": [{"target": "live"}], "n": 7, "sure": True}
    assert verdict_of({"deny": ["deploy(live)"]}, "deploy", **deep) == "deny"
    assert verdict_of({"deny": ["deploy(7)"]}, "deploy", **deep) == "deny"
    assert verdict_of({"deny": ["deploy(true)"]}, "deploy", **deep) == "deny"
    assert verdict_of({"deny": ["deploy(test)"]}, "deploy", **deep) == "allow"
    assert verdict_of({"deny": ["open(secret/**)"]}, "open", where={"file": "./x/../secret/key"}) == "deny"
    assert verdict_of({"deny": ["run(rm *)"]}, "run", script="ls; rm x") == "deny"


def test_names_in_the_arguments_of_a_foreign_tool_are_matched_like_texts() -> None:
    denying = {"deny": ["open(secret/**)", "open(rm *)", "open(live)", "open(file-name=hidden*)"]}
    for arguments in (
        {"files": {"secret/key": "x"}}, {"files": [{"./a/../secret/key": None}]}, {"steps": {"a": {"rm x": {}}}},
        {"stage": {"live": True}}, {"stage": {"secret": {}}}, {"secret/key": 1},
        {"uri": "FILE:/work/project/secret/key"},
        {"uri": "File://localhost/work/project/secret/key"}, {"file-name": "hidden.txt"}, {"file-name": {"hidden": 1}},
        {"Command": "x" * 5000 + "; rm x"},
    ):  # fmt: skip
        assert verdict_of(denying, "open", **arguments) == "deny", arguments
    assert verdict_of(denying, "open", live="x", rm={"x": 1}) == "allow"
    allowing = {"allow": ["open(src/*)", "make(file-name=src/*)"], "default": "ask"}
    assert verdict_of(allowing, "open", options={"path": "src/a"}) == "allow"
    assert verdict_of(allowing, "open", files={"src/a": "src/b"}) == "allow"
    assert verdict_of(allowing, "open", files={"/etc/x": "src/b"}) == "ask"
    assert verdict_of(allowing, "make", **{"file-name": "src/b"}) == "allow"


def test_allowances_of_a_foreign_tool_cover_every_argument_together() -> None:
    one = {"allow": ["deploy(env=dev)"], "default": "ask"}
    assert verdict_of(one, "deploy", env="dev") == "allow"
    for arguments in (
        {}, {"env": "prod"}, {"env": "dev", "command": "rm -rf /"}, {"env": "dev", "force": True},
        {"env": "dev", "targets": []}, {"env": "dev", "more": None}, {"env": ["dev", "prod"]}, {"env": []},
        {"env": "dev", "x": {"env": "dev"}}, {"Env": "dev"}, {"env": "dev", "": "x"},
    ):  # fmt: skip
        assert verdict_of(one, "deploy", **arguments) == "ask", arguments
    two = {"allow": ["deploy(env=dev)", "deploy(region=eu-*)"], "default": "ask"}
    assert verdict_of(two, "deploy", env="dev", region="eu-1") == "allow"
    assert verdict_of(two, "deploy", env="dev", region="us-1") == "ask"
    assert verdict_of(two, "deploy", env="dev", region="eu-1", force="yes") == "ask"
    rest = {"allow": ["deploy(env=dev)", "deploy(src/*)", "deploy(lib/*)"], "default": "ask"}
    assert verdict_of(rest, "deploy", env="dev", a="src/x", b="src/y") == "allow"
    assert verdict_of(rest, "deploy", env="dev", a="src/x", b="lib/y") == "ask"
    assert verdict_of(rest, "deploy", env="prod", a="src/x") == "ask"
    some = {"allow": ["deploy(env=dev)", "deploy(env=test)", "deploy(command=git *)"], "default": "ask"}
    assert verdict_of(some, "deploy", env="test", command="git log") == "allow"
    assert verdict_of(some, "deploy", env="test", command="git log; rm x") == "ask"


def test_an_allowance_of_a_foreign_tool_does_not_reach_above_its_folder() -> None:
    allowing = {"allow": ["open(file=src/*)", "run(git *)"], "default": "ask"}
    assert verdict_of(allowing, "open", file="src/a") == "allow"
    assert verdict_of(allowing, "open", file="src/../secret") == "ask"
    assert verdict_of(allowing, "run", command="git log") == "allow"
    assert verdict_of(allowing, "run", command="git log; rm x") == "ask"


@pytest.mark.parametrize("tool", ["grep", "find", "ls"])
def test_searching_needs_what_reading_needs(tmp_path: Path, tool: str) -> None:
    (tmp_path / "secret").mkdir()
    rules, _ = rules_from({"deny": ["read(secret/**)"], "ask": ["read(draft/**)"]})
    assert verdict(rules, tool, {"path": "secret", "pattern": "x"}, paths_in(tmp_path)) == "deny"
    assert verdict(rules, tool, {"path": "draft", "pattern": "x"}, paths_in(tmp_path)) == "ask"
    assert verdict(rules, tool, {"path": ".", "pattern": "x"}, paths_in(tmp_path)) == "allow"


# --- the gate ---------------------------------------------------------------------------------------------------------

ASKING = rules_from({"ask": ["bash"], "timeoutMs": 50})[0]


class Host:
    def __init__(self, answer: Callable[[], Awaitable[object]]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, question: PermissionQuestion, timeout_ms: int) -> PermissionOutcome:
        self.asked.append((question.title, timeout_ms))
        return outcome_of(await self._answer())


def answering(value: object) -> Host:
    async def answer() -> object:
        return value

    return Host(answer)


async def push(command: str = "git push") -> PreparedCall:
    return await prepare_call("bash", {"command": command}, PATHS)


def gate(host: Host, rules: PermissionLayers = ASKING) -> PermissionGate:
    return PermissionGate(rules, NOTHING, host, lambda: PATHS, lambda: "one")


async def test_a_yes_lets_the_call_pass_once() -> None:
    host = answering(ALLOW_ONCE)
    asking = gate(host)
    await asking.before_call(await push())
    await asking.before_call(await push())
    assert host.asked == [("Allow bash: git push", 50)] * 2


async def test_a_yes_for_the_session_is_remembered_for_that_call_only() -> None:
    host = answering(ALLOW_ALWAYS)
    asking = gate(host)
    await asking.before_call(await push())
    await asking.before_call(await push())
    assert len(host.asked) == 1
    await asking.before_call(await push("git push --force"))
    assert len(host.asked) == 2


class Deploying(ArgumentTool):
    reads_only = False

    def __init__(self, about: str, said: bool = True, **properties: Json) -> None:
        self.spec = ToolSpec("deploy", about, {"type": "object", "properties": properties})
        self._said = said

    @property
    def definition(self) -> ToolSpec | None:
        return self.spec if self._said else None

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        raise NotImplementedError


async def test_a_yes_for_the_session_ends_when_the_tool_says_something_else_about_itself() -> None:
    host = answering(ALLOW_ALWAYS)
    asking = gate(host, rules_from({"ask": ["deploy"]})[0])

    async def deploy(tool: Deploying) -> int:
        prepared = PreparedCall(ToolCall(id="1", name="deploy", arguments={}), tool, Scope())
        await prepared.replace_arguments({"to": "dev"})
        await asking.before_call(prepared)
        return len(host.asked)

    assert [await deploy(Deploying("Deploys")) for _ in range(2)] == [1, 1]
    assert await deploy(Deploying("Deploys, and deletes what was there")) == 2
    assert await deploy(Deploying("Deploys", force={"type": "boolean", "default": True})) == 3
    assert await deploy(Deploying("Deploys")) == 3
    # One that has not said what it means is asked about each time.
    assert [await deploy(Deploying("", said=False)) for _ in range(2)] == [4, 5]
    kept = asking.list_session_allowances()
    later = gate(host, rules_from({"ask": ["deploy"]})[0])
    later.allow_calls([replace(one, definition="") for one in kept])
    asking = later
    assert await deploy(Deploying("Deploys")) == 6
    asking = gate(host, rules_from({"ask": ["deploy"]})[0])
    asking.allow_calls(kept)
    assert await deploy(Deploying("Deploys")) == 6


async def test_no_more_than_a_thousand_answers_are_remembered() -> None:
    host = answering(ALLOW_ALWAYS)
    asking = gate(host)
    calls = [{"command": f"git push {number}"} for number in range(1001)]
    for arguments in calls:
        await asking.before_call(await push(arguments["command"]))
    host.asked.clear()
    for arguments in (calls[0], calls[999], calls[1000]):
        await asking.before_call(await push(arguments["command"]))
    assert [title for title, _ in host.asked] == ["Allow bash: git push 1000"]


@pytest.mark.parametrize(
    "value",
    [None, DENY, "", "allow once", "Allow", "Allow once ", True, 1, 0, [ALLOW_ONCE], {"value": ALLOW_ONCE}, object()],
)
async def test_anything_but_a_clear_yes_is_a_no(value: object) -> None:
    with pytest.raises(ToolFailed, match="Permission denied for bash: git push"):
        await gate(answering(value)).before_call(await push())


async def test_a_host_that_never_answers_or_cannot_be_asked_is_a_no() -> None:
    async def never() -> object:
        await asyncio.Event().wait()
        return ALLOW_ONCE

    async def fail() -> object:
        raise ConnectionError("gone")

    impatient = rules_from({"ask": ["bash"], "timeoutMs": 1})[0]
    host = Host(never)
    waiting = asyncio.ensure_future(gate(host, impatient).before_call(await push()))
    with pytest.raises(ToolFailed, match="could not be asked"):
        await asyncio.wait_for(waiting, 10)
    with pytest.raises(ToolFailed, match="ConnectionError"):
        await gate(Host(fail)).before_call(await push())


async def test_an_abort_while_asking_is_an_abort() -> None:
    async def never() -> object:
        await asyncio.Event().wait()
        return ALLOW_ONCE

    host = Host(never)
    waiting = asyncio.ensure_future(gate(host, rules_from({"ask": ["bash"]})[0]).before_call(await push()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_denial_names_the_rule_and_asks_nobody() -> None:
    host = answering(ALLOW_ONCE)
    rules, _ = rules_from({"deny": ["bash(git push*)"]})
    with pytest.raises(ToolFailed, match=r'rule "bash\(git push\*\)"'):
        await gate(host, rules).before_call(await push())
    assert host.asked == []


async def test_what_is_shown_cannot_pass_for_something_else() -> None:
    host = answering(ALLOW_ONCE)
    await gate(host).before_call(await push("ls\x1b[2K\u202eevil " + "x" * 1000 + "; rm -rf ~"))
    title = host.asked[0][0]
    assert "\x1b" not in title
    assert "\u202e" not in title
    assert title.endswith("; rm -rf ~")


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        (" " * 312, "[312 spaces]"),
        ("\t" * 30, "[240 spaces]"),
        (" \t" * 40, "[320 spaces]"),
        ("\n" * 80, "[79 blank lines]"),
        (" \n\t\n" * 40, "[79 blank lines]"),
        ("\u200b" * 500, "[500 unprintable characters]"),
        ("\u3164" * 500, "[500 unprintable characters]"),
        ("\u2800" * 500, "[500 unprintable characters]"),
        ("\u0301" * 500, "[492 unprintable characters]"),
        ("\r", "\ufffd"),
        ("\u2028", "\ufffd"),
        ("\u2067", "\ufffd"),
        ("\ud800", "\ufffd"),
        ("\U000e0041", "\ufffd"),
    ],
)
def test_nothing_pushes_the_end_of_a_text_out_of_sight(hidden: str, shown: str) -> None:
    said = make_visible(f"echo hi{hidden}; rm -rf ~")
    assert shown in said
    assert said.endswith("; rm -rf ~")
    assert len(said) < 100


def test_ordinary_text_is_shown_as_it_is() -> None:
    code = "cat > x.py <<'E'\ndef f():\n        return 1\n\n\n\ndef grün() -> str:\n\t\treturn '❤️ 漢字'\nE"
    assert make_visible(code) == code


@given(st.text(st.sampled_from(" \t\n\r\0a;\u200b\u3164\u0301\u202e\ufe0fX")), st.text())
def test_every_visible_character_of_a_text_is_shown_and_no_other(filler: str, end: str) -> None:
    said = make_visible(filler + end + "; rm -rf ~")
    assert said.endswith("; rm -rf ~")
    kept = [char for char in filler + end if char.isascii() and char.isprintable() and char != " "]
    at = 0
    for char in kept:
        at = said.index(char, at) + 1
    assert not [char for char in said if not char.isprintable() and char not in "\n\t"]
    assert " " * 41 not in said
    assert "\n" * 6 not in said


class Changing:
    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments

    async def before_call(self, prepared: PreparedCall) -> None:
        await prepared.replace_arguments(self._arguments)

    async def after_call(self, call: ToolCall, outcome: ToolOutcome, is_error: bool) -> tuple[ToolOutcome, bool]:
        return outcome, not is_error


async def test_a_later_gate_cannot_change_a_call_behind_the_permissions() -> None:
    rules, _ = rules_from({"deny": ["bash(rm *)"]})
    first = gate(answering(None), rules)
    with pytest.raises(ToolFailed, match="rm x"):
        await chain_gates([first, Changing({"command": "rm x"})]).before_call(await push())
    both = chain_gates([first, Changing({"command": "ls"})])
    changed = await push()
    await both.before_call(changed)
    assert changed.arguments == {"command": "ls"}
    outcome = ToolOutcome(content=[])
    assert await both.after_call(changed.call, outcome, False) == (outcome, True)
    assert chain_gates([first]) is first


async def test_a_search_from_above_conceals_what_may_not_be_read(tmp_path: Path) -> None:
    rules, _ = rules_from({"deny": ["read(secret/**)"], "ask": ["grep(*.log)", "read(draft/**)"], "default": "ask"})
    asking = PermissionGate(rules, NOTHING, answering(ALLOW_ONCE), lambda: paths_in(tmp_path), lambda: "one")
    (tmp_path / "draft").mkdir()
    for folder, concealed in ((".", ["secret/key", "x.log", "draft/x"]), ("draft", ["secret/key", "x.log"])):
        call = await prepare_call("grep", {"path": folder, "pattern": "x"}, paths_in(tmp_path))
        await asking.before_call(call)
        names = ["secret/key", "x.log", "draft/x", "plain.txt"]
        assert [name for name in names if call.conceals(f"{tmp_path}/{name}")] == concealed
        call.close()


async def test_a_yes_for_the_session_is_for_one_folder(tmp_path: Path) -> None:
    host = answering(ALLOW_ALWAYS)
    folders = [paths_in(tmp_path / name) for name in ("one", "one", "two")]
    asking = PermissionGate(ASKING, NOTHING, host, lambda: folders.pop(0), lambda: "one")
    for _ in range(3):
        await asking.before_call(await push())
    assert len(host.asked) == 2
