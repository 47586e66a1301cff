"""Protected places: which there are, however they are spelled, and what names them."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.tool_run import prepare_call
from pigeon.permissions.gate import PermissionGate, PermissionQuestion
from pigeon.permissions.protected import ProtectedPlaces
from pigeon.permissions.rules import PermissionLayers, build_layers, parse_host_rules
from pigeon.system.paths import PathResolver
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import PermissionOutcome

Rules = dict[str, Any]


class House:
    """A home with an agent's folder in it, a project, and a gate that is asked about writing there."""

    def __init__(self, root: Path, variables: dict[str, str] | None = None, own: tuple[str, ...] = ()) -> None:
        self.root = Path(os.path.realpath(root))
        self.home, self.work = self.root / "home", self.root / "project"
        self.agent = self.home / ".pigeon" / "agent"
        for folder in (self.agent, self.work):
            folder.mkdir(parents=True, exist_ok=True)
        self.places = ProtectedPlaces([str(self.agent), *own], [str(self.home)], variables or {})
        self.paths = PathResolver(str(self.work), str(self.home))
        self.asked: list[str] = []

    async def writes(self, rules: Rules | PermissionLayers, path: object, tool: str = "write") -> bool:
        """Whether a call passes; the host says yes to everything that it is asked."""
        return await self._passes(rules, tool, {"path": str(path)})

    async def runs(self, rules: Rules, command: str) -> bool:
        """The same for a command."""
        return await self._passes(rules, "bash", {"command": command})

    async def strictness(self, rules: PermissionLayers, tool: str, path: str) -> int:
        """0 if a call passes, 1 if it is asked about, 2 if it is refused."""
        self.asked.clear()
        passes = await self._passes(rules, tool, {"path": path}, "")
        return (1 if self.asked else 0) if passes else 2

    async def _passes(
        self, rules: Rules | PermissionLayers, tool: str, arguments: dict[str, Any], why: str = "protected"
    ) -> bool:
        layers = rules if isinstance(rules, PermissionLayers) else build_layers(rules, None, "yolo", pytest.fail)

        async def ask(question: PermissionQuestion, timeout_ms: int) -> PermissionOutcome:
            self.asked.append(question.title)
            return "session"

        gate = PermissionGate(layers, self.places, ask, lambda: self.paths, lambda: "one")
        call = await prepare_call(tool, arguments, self.paths)
        try:
            await gate.before_call(call)
        except ToolFailed as refusal:
            assert why in str(refusal)  # noqa: PT017
            return False
        finally:
            call.close()
        return True


ANY: Rules = {"allow": ["*", "write", "write(**)", "edit(**)", "write(/**)"], "default": "allow"}
PROTECTED = [
    ".git/hooks/pre-commit", ".git/config", ".git", "sub/.git/hooks/x", ".git/modules/a/b/hooks/post-checkout",
    ".git/modules/a/config", ".git/worktrees/w/config.worktree", "bare.git/hooks/update", "bare.git/config",
    ".pigeon/settings.json", ".pigeon/extensions/evil.py", ".pi/settings.json", ".agents/skills/x/SKILL.md",
    "../.agents/skills/x/SKILL.md", "../.pi/extensions/x.ts", ".omp/rules/x.md", "deep/er/.pigeon",
    "~/.pigeon/agent/settings.json", "~/.pigeon/agent/extensions/x.py", "~/.pigeon/agent/sessions/x.jsonl",
    "~/.bashrc", "~/.bash_profile", "~/.profile", "~/.zshrc", "~/.zshenv", "~/.config/fish/config.fish",
    "~/.config/fish/functions/ls.fish", "~/.ssh/authorized_keys", "~/.gitconfig", "~/.config/git/config", "~/.npmrc",
    "~/.config/systemd/user/x.service", "/etc/profile.d/x.sh",
]  # fmt: skip
FREE = [
    "src/a.py", ".gitignore", ".github/workflows/x.yml", ".gitattributes", "config", "hooks/pre-commit", "git/config",
    "bare.git/description", ".bashrc", "dotfiles/.zshrc", "pigeon/settings.json", "~/notes", "~/.config/other/x",
    ".env", "AGENTS.md", ".pigeonrc", "x.pi",
]  # fmt: skip


@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_no_rule_that_merely_matches_opens_a_protected_place(tmp_path: Path, path: str, tool: str) -> None:
    assert not await House(tmp_path).writes(ANY, path, tool)


@pytest.mark.parametrize("path", FREE)
async def test_everything_else_is_written_as_the_rules_say(tmp_path: Path, path: str) -> None:
    assert await House(tmp_path).writes(ANY, path)


async def test_reading_a_protected_place_is_as_the_rules_say(tmp_path: Path) -> None:
    house = House(tmp_path)
    (house.work / ".git").mkdir()
    (house.work / ".git" / "config").write_text("[core]\n")
    assert await house.writes(ANY, ".git/config", "read")


@pytest.mark.parametrize(
    ("rule", "path", "opened"),
    [
        ("write(.git/hooks/**)", ".git/hooks/pre-commit", True),
        ("write(.git/**)", ".git/hooks/pre-commit", True),
        ("write(.git)", "sub/.git/config", True),
        ("write(**/.git/config)", "sub/.git/config", True),
        ("*(.git/**)", ".git/config", True),
        ("write(.git/hooks/**)", ".git/config", False),
        ("edit(.git/**)", ".git/config", False),
        ("write(.gi?/**)", ".git/config", False),
        ("write(.*/**)", ".git/config", False),
        ("write(**/config)", ".git/config", False),
        ("write(.git*/**)", ".git/config", False),
        ("write(~/.bashrc)", "~/.bashrc", True),
        ("write(.bashrc)", "~/.bashrc", True),
        ("write(~/**)", "~/.bashrc", False),
        ("write(~/.bash*)", "~/.bashrc", False),
        ("write(~/.config/**)", "~/.config/fish/config.fish", False),
        ("write(~/.config/fish/**)", "~/.config/fish/config.fish", True),
        ("write(~/.pigeon/agent/**)", "~/.pigeon/agent/settings.json", True),
        ("write(~/.pigeon/**)", "~/.pigeon/agent/settings.json", False),
        ("write(.pigeon)", "~/.pigeon/agent/settings.json", False),
        ("write(.pigeon/**)", "~/.pigeon/agent/settings.json", False),
        ("write(.pigeon/**)", ".pigeon/settings.json", True),
    ],
)
async def test_a_rule_counts_whose_pattern_names_the_place(tmp_path: Path, rule: str, path: str, opened: bool) -> None:
    house = House(tmp_path)
    assert await house.writes({"allow": [rule]}, path) is opened
    assert house.asked == []
    assert await house.writes({"ask": [rule]}, path) is opened
    assert len(house.asked) == opened


@pytest.mark.parametrize(
    "command",
    [
        "echo x > .git/hooks/pre-commit", "echo x >> ~/.bashrc", "echo x>|'.git'/config",
        "cat <<E >.gi\\t/config\nx\nE",
        "cd .git; echo x > config", "cd .git/hooks && echo x > pre-push", "true; { echo x; } > $HOME/.zshrc",
        "sh -c 'echo x > .git/config'", "echo x &> .pigeon/settings.json", "echo x > link/x", ": <> .git/config",
        "echo a > fine; echo b > .pi/x", "> .git/config",
    ],
)  # fmt: skip
async def test_a_redirection_of_a_command_writes_there_no_more_than_write_does(tmp_path: Path, command: str) -> None:
    house = House(tmp_path)
    (house.work / ".git" / "hooks").mkdir(parents=True)
    (house.work / "link").symlink_to(".git/hooks")
    assert not await house.runs(ANY, command)


@pytest.mark.parametrize(
    "command", ["ls 2> /dev/null", "echo x > a; cat < .git/config", "git log > out.txt", "[ 1 > 0 ]"]
)
async def test_other_redirections_are_as_the_rules_say(tmp_path: Path, command: str) -> None:
    assert await House(tmp_path).runs(ANY, command)


async def test_a_redirection_needs_a_rule_for_write_that_names_the_place(tmp_path: Path) -> None:
    house, command = House(tmp_path), "echo x > .git/hooks/pre-push"
    assert not await house.runs({"allow": ["bash", "edit(.git/**)"]}, command)
    assert await house.runs({"allow": ["bash", "write(.git/hooks/**)"]}, command)
    assert house.asked == []
    assert await house.runs({"allow": ["bash"], "ask": ["write(.git/hooks/**)"]}, command)
    assert len(house.asked) == 1


async def test_a_command_that_cannot_be_followed_is_asked_about(tmp_path: Path) -> None:
    house = House(tmp_path)
    assert await house.runs(ANY, "".join(f"cd {n}; " for n in range(50)) + "echo x > config")
    assert await house.runs(ANY, "echo x > a; " * 1000 + "echo y > " + " > ".join(f"f{n}" for n in range(1000)))
    assert len(house.asked) == 2


async def test_only_the_user_opens_what_the_users_rules_protect(tmp_path: Path) -> None:
    house, naming = House(tmp_path), {"allow": ["write(.git/**)"]}
    assert await house.writes(PermissionLayers(host=parse_host_rules(naming, "yolo")), ".git/config")
    user = build_layers({"deny": ["bash"]}, None, "yolo", pytest.fail)
    assert not await house.writes(replace(user, host=parse_host_rules(naming, "yolo")), ".git/config")
    assert not await house.writes(
        build_layers({"deny": ["bash"]}, {"ask": naming["allow"]}, "yolo", pytest.fail), ".git/x"
    )
    opened = build_layers(naming, {"deny": ["bash"]}, "yolo", pytest.fail)
    assert await house.writes(replace(opened, host=parse_host_rules({"ask": ["bash"]}, "write")), ".git/config")
    assert house.asked == []


async def test_a_rule_that_names_the_place_takes_no_question_of_another_source_away(tmp_path: Path) -> None:
    house = House(tmp_path)
    opened = build_layers({"allow": ["write(.git/**)"]}, None, "yolo", pytest.fail)
    assert await house.strictness(opened, "write", ".git/config") == 0
    asking = replace(opened, host=parse_host_rules({"ask": ["write"]}, "yolo"))
    assert await house.strictness(asking, "write", ".git/config") == 1


async def test_a_place_that_becomes_protected_while_the_host_is_asked_is_not_written(tmp_path: Path) -> None:
    house = House(tmp_path)
    opened = build_layers({"ask": ["write(.git/**)"]}, None, "yolo", pytest.fail)

    async def ask(question: PermissionQuestion, timeout_ms: int) -> PermissionOutcome:
        gate.use_rules(build_layers({"deny": ["bash"]}, None, "yolo", pytest.fail))
        return "once"

    gate = PermissionGate(opened, house.places, ask, lambda: house.paths, lambda: "one")
    call = await prepare_call("write", {"path": ".git/config"}, house.paths)
    with pytest.raises(ToolFailed, match="protected"):
        await gate.before_call(call)
    call.close()


NAMING = ("write", "edit", "write(.git/**)", "write(**)", "*(.git)", "write(~/.bashrc)", "edit(.bashrc)", "write(a)")
some_rules = st.lists(st.sampled_from(NAMING), max_size=3)
written = st.fixed_dictionaries(
    {},
    optional={"deny": some_rules, "ask": some_rules, "allow": some_rules, "default": st.sampled_from(["allow", "ask"])},
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(
    written, written, written, st.sampled_from(["write", "edit"]), st.sampled_from([".git/config", "~/.bashrc", "a"])
)
async def test_no_rule_of_a_project_or_a_host_opens_what_the_users_rules_protect(
    tmp_path: Path, user: Rules, project: Rules, host: Rules, tool: str, path: str
) -> None:
    house = House(tmp_path)
    alone = build_layers(user, None, "yolo", pytest.fail)
    both = replace(build_layers(user, project, "yolo", pytest.fail), host=parse_host_rules(host, "yolo"))
    order = [await house.strictness(layers, tool, path) for layers in (alone, both) if layers.is_in_force]
    assert order == sorted(order)


@pytest.mark.parametrize("mode", ["always-ask", "write"])
async def test_an_approval_mode_is_a_rule_in_force(tmp_path: Path, mode: Any) -> None:
    house = House(tmp_path)
    assert not await house.writes(PermissionLayers(host=parse_host_rules({}, mode)), ".git/hooks/x")
    assert not await house.writes(build_layers(None, None, mode, pytest.fail), "~/.bashrc")
    assert house.asked == []


async def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    house = House(tmp_path)
    (house.work / ".git" / "hooks").mkdir(parents=True)
    (house.work / "link").symlink_to(".git/hooks")
    (house.work / "rc").symlink_to(house.home / ".bashrc")
    (house.work / "agent").symlink_to(house.agent)
    (house.work / ".pi").symlink_to("plain")
    for path in ("link/pre-commit", "rc", "agent/settings.json", ".pi/settings.json", "plain/../link/x"):
        assert not await house.writes(ANY, path), path


async def test_another_name_of_a_protected_file_is_protected(tmp_path: Path) -> None:
    house = House(tmp_path)
    (house.work / ".git" / "hooks").mkdir(parents=True)
    secret = [house.home / ".bashrc", house.agent / "settings.json", house.work / ".git" / "hooks" / "pre-push"]
    for number, file in enumerate(secret):
        file.write_text("x")
        os.link(file, house.work / f"name{number}")
        assert not await house.writes(ANY, f"name{number}")
    (house.work / "plain").write_text("x")
    os.link(house.work / "plain", house.work / "other")
    assert await house.writes(ANY, "other")


async def test_a_start_up_file_that_is_a_link_protects_what_it_leads_to(tmp_path: Path) -> None:
    house = House(tmp_path)
    (house.work / "dotfiles").mkdir()
    (house.home / ".zshrc").symlink_to(house.work / "dotfiles" / "zshrc")
    (house.work / ".git").mkdir()
    (house.work / ".git" / "hooks").symlink_to("../scripts")
    assert not await house.writes(ANY, "dotfiles/zshrc")
    assert not await house.writes(ANY, "scripts/pre-commit")
    assert await house.writes(ANY, "dotfiles/other")


async def test_git_may_keep_a_repository_elsewhere_and_run_other_hooks(tmp_path: Path) -> None:
    house = House(tmp_path)
    (house.work / ".git").write_text("gitdir: ../data/worktrees/one\n")
    data = house.root / "data"
    (data / "worktrees" / "one").mkdir(parents=True)
    (data / "worktrees" / "one" / "commondir").write_text("../..\n")
    (data / "config").write_text('[core]\n\thooksPath = ".husky/_"\n')
    for path in (".git", data / "hooks" / "x", data / "config", data / "worktrees" / "one" / "x", ".husky/_/pre-push"):
        assert not await house.writes(ANY, path), path
    assert await house.writes({"allow": ["write(.husky/_/**)"]}, ".husky/_/pre-push")
    assert await house.writes(ANY, ".husky/notes")


@pytest.mark.parametrize("content", [b"gitdir: \0\xff", b"gitdir: " + b"x/" * 30_000, b"", b"[core]\nhooksPath=\0"])
async def test_a_repository_that_lies_does_no_harm(tmp_path: Path, content: bytes) -> None:
    house = House(tmp_path)
    (house.work / ".git").write_bytes(content)
    assert await house.writes(ANY, "a")
    os.remove(house.work / ".git")
    (house.work / ".git").mkdir()
    (house.work / ".git" / "config").write_bytes(content)
    os.mkfifo(house.work / ".git" / "commondir")
    assert await house.writes(ANY, "a")


async def test_what_variables_and_options_name_is_protected(tmp_path: Path) -> None:
    work = f"{House(tmp_path).work}"
    variables = {"BASH_ENV": f"{work}/env.sh", "ZDOTDIR": f"{work}/z", "XDG_CONFIG_HOME": f"{work}/../c"}
    house = House(tmp_path, variables, (f"{work}/gate.py",))
    for path in ("env.sh", "z/.zshrc", house.root / "c" / "fish" / "config.fish", "gate.py"):
        assert not await house.writes(ANY, path), path
    assert await house.writes(ANY, "z/other")


async def fail_on_question(question: PermissionQuestion, timeout_ms: int) -> PermissionOutcome:
    pytest.fail(question.title)


async def test_a_refusal_names_a_rule_that_opens_the_place(tmp_path: Path) -> None:
    house = House(tmp_path)
    for path in PROTECTED:
        call = await prepare_call("write", {"path": path}, house.paths)
        gate = PermissionGate(
            build_layers(ANY, None, "yolo", pytest.fail), house.places, pytest.fail, lambda: house.paths, str
        )
        with pytest.raises(ToolFailed) as refusal:
            await gate.before_call(call)
        call.close()
        rule = str(refusal.value).split('permissions.ask: "')[1].split('")')[0]
        assert await house.writes({"allow": [rule]}, path), rule


async def test_a_refusal_says_what_is_protected(tmp_path: Path) -> None:
    elsewhere = f"{House(tmp_path).work}/gate.py"
    house = House(tmp_path, own=(elsewhere,))
    named = {"~/.pigeon/agent/settings.json": "~/.pigeon/agent", "gate.py": elsewhere, "~/.bashrc": "~/.bashrc"}
    for path, name in named.items():
        call = await prepare_call("write", {"path": path}, house.paths)
        gate = PermissionGate(
            build_layers(ANY, None, "yolo", pytest.fail), house.places, fail_on_question, lambda: house.paths, str
        )
        with pytest.raises(ToolFailed, match=rf"\({re.escape(name)} is protected"):
            await gate.before_call(call)
        call.close()


def respell_path(path: str, choices: list[int]) -> str:
    """The same path for a file system that does not look closely."""
    made = []
    for index, char in enumerate(path):
        choice = choices[index % len(choices)]
        made.append({0: char, 1: char.upper(), 2: unicodedata.normalize("NFD", char), 3: f"{char}\u200d"}[choice])
    return "".join(made).replace("/", "//" if choices[0] else "/./")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.sampled_from([".git/config", ".pigeon/x", ".pi/settings.json", "sub/.agents/x", "a.git/hooks/x"]),
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
)
async def test_spellings_that_some_file_systems_take_for_the_same_name_are_protected(
    tmp_path: Path, path: str, choices: list[int]
) -> None:
    assert not await House(tmp_path).writes(ANY, respell_path(path, choices))
