"""Rules of several sources: the host and the project can only tighten what the user's rules say."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.tool_run import subject_of
from pigeon.permissions.rules import PermissionLayers, build_layers, make_concealment_test, parse_host_rules, ruling_of
from pigeon.system.paths import PathResolver
from pigeon.wire.choices import ApprovalMode, Verdict
from pigeon.wire.errors import Refusal

PATHS = PathResolver("/work/project", "/home/me")
STRICTNESS = get_args(Verdict)
MODES = get_args(ApprovalMode)
TOOLS = ("read", "write", "edit", "bash", "grep", "ls", "deploy", "*", "?ead")
INNER = ("", "*", "git *", "rm *", "src/**", "**", ".env", "secret/*", "a", "/work/**", "~/x", "stage=live")

texts = st.tuples(st.sampled_from(TOOLS), st.sampled_from(INNER)).map(lambda t: f"{t[0]}({t[1]})" if t[1] else t[0])
written = st.fixed_dictionaries(
    {},
    optional={
        "deny": st.lists(texts, max_size=3),
        "ask": st.lists(texts, max_size=3),
        "allow": st.lists(texts, max_size=3),
        "default": st.sampled_from(STRICTNESS),
    },
)
# Settings that nobody understands have to be as strict as any others.
scribbled = written | st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=3)
modes = st.sampled_from(MODES)
calls = st.one_of(
    st.tuples(
        st.just("bash"), st.fixed_dictionaries({"command": st.sampled_from(["git log", "rm x", "git a; rm b", "ls"])})
    ),
    st.tuples(
        st.sampled_from(["read", "write", "edit", "grep", "ls"]),
        st.fixed_dictionaries({"path": st.sampled_from([".env", "src/a", "secret/k", "/etc/hosts", "a", "~/x"])}),
    ),
    st.tuples(st.just("deploy"), st.fixed_dictionaries({"stage": st.sampled_from(["live", "a", "git x"])})),
)


def layers_of(user: Any, project: Any = None, mode: Any = "yolo") -> PermissionLayers:
    return build_layers(user, project, mode, lambda problem: None)


def verdict(layers: PermissionLayers, call: tuple[str, dict[str, Any]]) -> Verdict:
    tool, arguments = call
    subject = subject_of(tool, arguments, PATHS)
    try:
        return ruling_of(layers, tool, subject, PATHS).verdict
    finally:
        subject.close()


@given(scribbled, modes, scribbled, written, modes, calls)
def test_no_rule_of_a_project_or_a_host_loosens_what_the_user_wants(
    user: Any, mode: Any, project: Any, host: Any, host_mode: Any, call: tuple[str, dict[str, Any]]
) -> None:
    alone = layers_of(user, None, mode)
    with_project = layers_of(user, project, mode)
    with_host = replace(with_project, host=parse_host_rules(host, host_mode))
    order = [STRICTNESS.index(verdict(layers, call)) for layers in (alone, with_project, with_host)]
    assert order == sorted(order)


@given(written, modes, calls)
def test_a_host_that_is_the_only_source_rules_as_the_user_would(
    rules: Any, mode: Any, call: tuple[str, dict[str, Any]]
) -> None:
    host = PermissionLayers(host=parse_host_rules(rules, mode))
    assert verdict(host, call) == verdict(layers_of(rules, None, mode), call)


@given(written, written, st.sampled_from(["/work/project/.env", "/work/project/src/a", "/home/me/x"]))
def test_what_the_users_rules_conceal_stays_concealed(user: Any, host: Any, place: str) -> None:
    alone = layers_of(user)
    both = replace(alone, host=parse_host_rules(host, "yolo"))
    hidden = make_concealment_test(alone, "grep", (), PATHS)(place)
    assert make_concealment_test(both, "grep", (), PATHS)(place) or not hidden


@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [
        ("always-ask", ["allow", "allow", "ask", "ask", "ask", "allow", "ask"]),
        ("write", ["allow", "allow", "allow", "ask", "ask", "allow", "ask"]),
        ("yolo", ["allow"] * 7),
    ],
)
def test_an_approval_mode_asks_before_what_no_rule_speaks_of(mode: ApprovalMode, verdicts: list[str]) -> None:
    made: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "a"}), ("ls", {"path": "."}), ("write", {"path": "a"}), ("bash", {"command": "ls"}),
        ("deploy", {"stage": "a"}), ("tool_search", {"query": "a"}), ("mcp__server__search", {"query": "a"}),
    ]  # fmt: skip
    assert [verdict(PermissionLayers(host=parse_host_rules({}, mode)), call) for call in made] == verdicts


def test_a_rule_of_the_same_source_is_stronger_than_its_approval_mode_and_a_default_only_adds() -> None:
    layers = layers_of({"allow": ["bash(git *)"], "deny": ["read(.env)"]}, None, "always-ask")
    assert verdict(layers, ("bash", {"command": "git log"})) == "allow"
    assert verdict(layers, ("bash", {"command": "ls"})) == "ask"
    assert verdict(layers, ("read", {"path": ".env"})) == "deny"
    assert verdict(layers_of({"default": "ask"}, None, "write"), ("read", {"path": "a"})) == "ask"
    assert verdict(layers_of({"default": "deny"}, None, "write"), ("bash", {"command": "ls"})) == "deny"


@pytest.mark.parametrize("mode", ["sometimes", "Always-Ask", None, 5, ["write"], {}])
def test_an_approval_mode_that_nobody_knows_asks_about_everything(mode: Any) -> None:
    problems: list[str] = []
    layers = build_layers({"allow": ["bash"]}, None, mode, problems.append)
    assert problems[0].startswith("the approval mode must be one of plan, always-ask, write, yolo; ")
    assert verdict(layers, ("bash", {"command": "ls"})) == "ask"
    assert verdict(layers, ("read", {"path": "a"})) == "ask"


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        (None, "permissions must be an object"), ([], "permissions must be an object"),
        ({"deny": "bash"}, "permissions.deny"), ({"ask": [5]}, "permissions.ask"),
        ({"allow": ["b("]}, "permissions.allow"),
        ({"default": "no"}, "permissions.default"), ({"timeoutMs": 0}, "permissions.timeoutMs"),
        ({"forbid": []}, "permissions.forbid"), ({"timeoutMs": 10**30}, "permissions.timeoutMs"),
    ],
)  # fmt: skip
def test_rules_of_a_host_that_cannot_be_understood_are_refused_by_their_field(rules: Any, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        parse_host_rules(rules, "yolo")


def test_a_refusal_is_short_however_long_the_rules_are() -> None:
    with pytest.raises(Refusal) as refusal:
        parse_host_rules({"deny": ["(" * 10**6] * 1000, **{f"{n}" + "x" * 1000: 1 for n in range(1000)}}, "yolo")
    assert len(str(refusal.value)) < 10_000


def test_a_list_with_more_rules_than_can_be_followed_is_refused() -> None:
    with pytest.raises(Refusal, match=r"permissions\.deny has 1001 rules"):
        parse_host_rules({"deny": [f"read(x{n})" for n in range(1001)]}, "yolo")
    assert len(parse_host_rules({"deny": [f"read(x{n})" for n in range(1000)]}, "yolo").by_verdict["deny"]) == 1000


def test_the_shortest_time_to_answer_counts() -> None:
    assert layers_of({"ask": ["bash"]}).timeout_ms == 120_000
    both = replace(layers_of({"timeoutMs": 500}), host=parse_host_rules({"timeoutMs": 90}, "yolo"))
    assert both.timeout_ms == 90
    assert PermissionLayers(timeout_unless_set=None).timeout_ms is None
    assert replace(both, timeout_unless_set=None).timeout_ms == 90
