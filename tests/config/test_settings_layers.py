from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pigeon.config.known_keys import describe_unknown_keys, find_misnamed_rules_key
from pigeon.config.layers import USERS_ONLY, Layers
from pigeon.config.settings import GROUPS, Group, Settings, ToolSettings, keys_of
from pigeon.wire.base import ABSENT


class Files:
    """The user's folder and two of a project."""

    def __init__(self, root: Path) -> None:
        self.user, self.one, self.two = (root / name for name in ("user", "one", "two"))
        for folder in (self.user, self.one, self.two):
            folder.mkdir()
        self.problems: list[str] = []

    def put(self, folder: Path, value: Any) -> None:
        (folder / "settings.json").write_text(value if isinstance(value, str) else json.dumps(value))

    def layers(self, user: Any = None, one: Any = None, two: Any = None) -> Layers:
        for folder, value in ((self.user, user), (self.one, one), (self.two, two)):
            if value is not None:
                self.put(folder, value)
        made = Layers(str(self.user), self.problems.append)
        if one is not None or two is not None:
            made.load_project_settings([str(self.one), str(self.two)])
        return made


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_without_files_everything_is_as_by_default(files: Files) -> None:
    layers = files.layers()
    assert layers.settings == Settings()
    assert files.problems == []
    assert (layers.user_permissions, layers.project_permissions) == (None, None)


def test_the_project_counts_only_when_somebody_vouches_for_it(files: Files) -> None:
    files.put(files.one, {"steeringMode": "all"})
    layers = files.layers({"followUpMode": "all"})
    assert (layers.settings.steering_mode, layers.settings.follow_up_mode) == ("one-at-a-time", "all")
    layers.load_project_settings([str(files.one)])
    assert (layers.settings.steering_mode, layers.settings.follow_up_mode) == ("all", "all")


def test_objects_merge_key_by_key_and_the_rest_is_replaced(files: Files) -> None:
    layers = files.layers(
        {"compaction": {"reserveTokens": 1, "enabled": False}, "defaultTools": ["read", "bash"]},
        {"compaction": {"reserveTokens": 2}, "defaultTools": ["read"]},
        {"compaction": {"keepRecentTokens": 3}},
    )
    compaction = layers.settings.compaction
    assert (compaction.reserve_tokens, compaction.keep_recent_tokens, compaction.enabled) == (2, 3, False)
    assert layers.settings.default_tools == ["read"]


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("defaultProjectTrust", "always", "default_project_trust"),
        ("keepProviderKeys", True, "keep_provider_keys"),
        ("permissions", {"allow": ["bash"]}, "permissions"),
    ],
)
def test_a_project_does_not_decide_what_is_the_users_alone(files: Files, key: str, value: Any, field: str) -> None:
    assert key in USERS_ONLY
    layers = files.layers({}, {key: value, "steeringMode": "all"})
    assert getattr(layers.settings, field) == getattr(Settings(), field)
    assert layers.settings.steering_mode == "all"
    assert getattr(files.layers({key: value}, {}).settings, field) == value


def test_a_project_does_not_take_away_what_the_user_said(files: Files) -> None:
    layers = files.layers({"permissions": {"deny": ["bash"]}}, {"permissions": {"deny": []}})
    assert layers.settings.permissions == {"deny": ["bash"]}
    assert layers.user_permissions == {"deny": ["bash"]}
    assert layers.project_permissions == {"deny": []}


def test_permissions_of_two_project_files_are_joined(files: Files) -> None:
    layers = files.layers(
        {},
        {"permissions": {"deny": ["a"], "ask": ["x"]}},
        {"permissions": {"deny": ["b"], "default": "ask"}},
    )
    assert layers.project_permissions == {"deny": ["b", "a"], "ask": ["x"], "default": "ask"}


@pytest.mark.parametrize("place", ["one", "two"])
def test_permissions_of_one_project_file_stand_alone(files: Files, place: str) -> None:
    layers = files.layers({}, **{"one": {}, "two": {}, place: {"permissions": {"deny": ["a"]}}})
    assert layers.project_permissions == {"deny": ["a"]}


@pytest.mark.parametrize("text", ["{", "[]", "3", "\ufeff[", '"x"'])
def test_a_file_that_holds_no_object_is_told_once_and_left_alone(files: Files, text: str) -> None:
    layers = files.layers(text, {"steeringMode": "all"})
    path = files.user / "settings.json"
    assert files.problems == []
    assert len(layers.doubts) == 1
    assert str(path) in layers.doubts[0]
    assert layers.settings.steering_mode == "all"
    assert path.read_text() == text


def test_a_byte_order_mark_is_no_mistake(files: Files) -> None:
    layers = files.layers("\ufeff" + json.dumps({"steeringMode": "all"}))
    assert (layers.settings.steering_mode, files.problems) == ("all", [])


def test_a_wrong_value_is_told_with_its_file_and_key_and_the_others_count(files: Files) -> None:
    layers = files.layers(
        {"steeringMode": 5, "followUpMode": "all", "retry": {"maxRetries": "many", "baseDelayMs": 7}}, {"images": 3}
    )
    assert layers.settings.follow_up_mode == "all"
    assert (layers.settings.retry.base_delay_ms, layers.settings.retry.max_retries) == (7, 3)
    keys = [problem.split(" is ignored")[0].split(": ")[-1] for problem in files.problems]
    assert keys == ["steeringMode", "retry.maxRetries", "images"]
    assert [str(files.one) in problem for problem in files.problems] == [False, False, True]


def test_keys_that_nobody_knows_are_no_mistake(files: Files) -> None:
    files.layers({"theme": "dark", "terminal": {"showImages": True}})
    assert files.problems == []


def test_a_wrong_value_of_the_project_leaves_the_users_in_force(files: Files) -> None:
    layers = files.layers(
        {"steeringMode": "all", "compaction": {"reserveTokens": 5}},
        {"steeringMode": 5, "compaction": {"reserveTokens": "x"}},
    )
    assert (layers.settings.steering_mode, layers.settings.compaction.reserve_tokens) == ("all", 5)


def test_broken_permissions_do_not_replace_good_ones(files: Files) -> None:
    layers = files.layers({}, {"permissions": {"deny": ["a"]}}, {"permissions": "none"})
    assert layers.project_permissions == {"deny": ["a"]}
    layers = files.layers({}, {"permissions": {"deny": ["a"]}}, {"permissions": {"deny": {"b": 1}}})
    assert layers.project_permissions == {"deny": [{"b": 1}, "a"]}


def test_a_folder_that_cannot_be_read_is_told(files: Files) -> None:
    (files.user / "settings.json").mkdir()
    layers = files.layers()
    assert "cannot be read" in layers.doubts[0]
    assert layers.settings.session_dir is ABSENT


@pytest.mark.parametrize("value", [None, [], "x", 3, True, ["deny"]])
@pytest.mark.parametrize("place", ["user", "one", "two"])
def test_permissions_that_are_no_object_are_a_doubt_and_no_rules(files: Files, place: str, value: Any) -> None:
    layers = files.layers(**{"user": {}, "one": {}, "two": {}, place: {"permissions": value}})
    assert len(layers.doubts) == 1
    assert (layers.user_permissions, layers.project_permissions) == (None, None)


@pytest.mark.parametrize("place", ["user", "one", "two"])
def test_a_file_that_cannot_be_used_is_a_doubt(files: Files, place: str) -> None:
    layers = files.layers(**{"user": {}, "one": {}, "two": {}, place: "{"})
    assert [str(getattr(files, place)) in doubt for doubt in layers.doubts] == [True]


def test_the_doubts_of_a_project_go_with_it(files: Files) -> None:
    layers = files.layers({}, {"permissions": None, "steeringMode": "all"})
    layers.load_project_settings([])
    assert (layers.doubts, layers.settings.steering_mode) == ([], "one-at-a-time")


def test_a_folder_that_is_a_link_to_nowhere_is_a_doubt_and_one_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert Layers(str(tmp_path / "none" / "agent"), print).doubts == []
    (tmp_path / "link").symlink_to(tmp_path / "unmounted")
    assert len(Layers(str(tmp_path / "link" / "agent"), print).doubts) == 1
    (tmp_path / "there").symlink_to(tmp_path)
    assert Layers(str(tmp_path / "there" / "agent"), print).doubts == []


def misspelt(word: str) -> st.SearchStrategy[str]:
    """The word with one letter left out, doubled, replaced or swapped with the next."""

    def misspell(place: int, kind: str, letter: str) -> str:
        before, at, after = word[:place], word[place], word[place + 1 :]
        return {
            "left out": before + after,
            "doubled": before + at * 2 + after,
            "replaced": before + letter + after,
            "swapped": before + after[:1] + at + after[1:],
            "raised": before + at.upper() + after,
        }[kind]

    kinds = st.sampled_from(["left out", "doubled", "replaced", "swapped", "raised"])
    return st.builds(misspell, st.integers(0, len(word) - 1), kinds, st.characters(codec="utf-8"))


@given(misspelt("permissions"))
def test_a_slip_in_the_name_of_the_permissions_is_never_a_way_around_them(key: str) -> None:
    assume(key != "permissions")
    assert find_misnamed_rules_key({key: {"deny": ["read"]}}, keys_of(Settings)) == (key, "permissions")


@given(misspelt("approvalMode"))
def test_nor_is_one_in_the_name_of_the_approval_mode(key: str) -> None:
    assume(key != "approvalMode")
    assert find_misnamed_rules_key({key: "write"}, keys_of(ToolSettings), "tools") == (key, "tools.approvalMode")
    assert find_misnamed_rules_key({key: "write"}, keys_of(Settings)) == (key, "tools.approvalMode")


@given(st.sampled_from(keys_of(Settings)).flatmap(lambda key: misspelt(key).map(lambda wrong: (key, wrong))))
def test_a_slip_in_any_key_is_reported(slip: tuple[str, str]) -> None:
    key, wrong = slip
    assume(wrong not in (*keys_of(Settings), "task"))  # another agent of the family knows this one
    [problem] = describe_unknown_keys([wrong], keys_of(Settings))
    assert len(key) < 8 or f'did you mean "{key}"' in problem


def test_keys_of_our_own_hide_no_permissions() -> None:
    assert find_misnamed_rules_key({key: {"permissions": 1} for key in keys_of(Settings)}, keys_of(Settings)) is None


def test_thousands_of_unknown_keys_are_a_doubt_and_few_are_named(files: Files) -> None:
    layers = files.layers({f"key{number}": {f"below{number}": 1} for number in range(10_000)})
    assert len(layers.doubts) == 1
    assert len(files.problems) == 21


@pytest.mark.parametrize("text", ["/*", '\\"', '"', ",", ", ", ",/*", "//", "/**/", ",/**/", '"\\', "[,", "*/", "/"])
def test_no_text_takes_long_to_be_found_wrong(files: Files, text: str) -> None:
    for start in ("", '{"a": ', "[", '"'):
        assert len(files.layers(start + text * (1 << 19 >> len(text).bit_length())).doubts) == 1


@pytest.mark.parametrize("wrong", [None, 0, -1, "9", True, 1e300, 10**400, [], {}])
def test_a_project_lowers_limits_and_never_raises_or_removes_them(files: Files, wrong: Any) -> None:
    layers = files.layers(
        {"limits": {"turns": 5, "cost": 1, "seconds": 60}, "loopGuard": {"warn": 2, "stop": 4}},
        {"limits": {"turns": 9, "cost": 0.5, "seconds": wrong, "tokens": 100}, "loopGuard": {"warn": 0, "stop": 99}},
        {"limits": {"cost": 0.7, "tokens": 50}},
    )
    assert layers.settings.limits == {"turns": 5, "cost": 0.5, "seconds": 60, "tokens": 50}
    assert (layers.settings.loop_guard.warn, layers.settings.loop_guard.stop) == (2, 4)
    assert len(files.problems) == (wrong is not None)
    assert all("limits.seconds is ignored" in problem for problem in files.problems)
    layers.load_project_settings([])
    assert layers.settings.limits == {"turns": 5, "cost": 1, "seconds": 60}
    files.put(files.one, {"limits": wrong})
    assert layers.load_project_settings([str(files.one)]).limits == {"turns": 5, "cost": 1, "seconds": 60}


def test_every_group_of_settings_is_read_key_by_key() -> None:
    groups = {name: kind for name, kind in GROUPS.items() if "." not in name}
    types = {field.encode_name: (field.type, *get_args(field.type)) for field in msgspec.structs.fields(Settings)}
    assert groups == {
        key: kind
        for key, kinds in types.items()
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Group)
    }
    assert set(GROUPS.values()) == set(Group.__subclasses__())


def test_a_wrong_value_and_an_unknown_key_of_a_group_are_reported_and_the_rest_is_kept(files: Files) -> None:
    layers = files.layers({"mcp": {"toolBudget": "much", "toolBuget": 5, "discoveryMode": True}})
    assert layers.settings == Settings()
    wrong, unknown = files.problems
    assert "mcp.toolBudget is ignored" in wrong
    assert "unknown key 'mcp.toolBuget' is ignored; did you mean \"mcp.toolBudget\"?" in unknown


BROKEN = {
    '{"a": 1,\n  "b" 2}': "line 2, column 7: ",
    '{\n  // a remark, "quoted"\n  "é": "ü", x\n}': "line 3, column 13: ",
    '{"a": /* two\nlines */ 1,\n': "line 2, column 12: Unexpected end of JSON input",
    '{"a": "\\u00zz"}': "line 1, column ",
    '{"\\u00e9": "ééé",\n "é" 2}': "line 2, column 6: Expecting ':' delimiter",
}


@pytest.mark.parametrize(("text", "place"), BROKEN.items())
def test_a_broken_file_names_the_line_and_the_column(files: Files, text: str, place: str) -> None:
    [problem] = files.layers(text).doubts
    assert f"not valid JSON: {place}" in problem
    assert not re.search("byte|char", problem)
