"""Where a word that can be chosen needs a text, an order or an effect, every one of the declared words has it."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from protocol_tables import FORM_FEATURES, feature_records

from pigeon.cli.args import WORDS, list_option_rows
from pigeon.frontends.acp.options import MODES
from pigeon.frontends.terminal.commands.slash_commands import DEFAULTS
from pigeon.permissions.rules import PermissionRules
from pigeon.rpc.session_connection import BEHAVIOUR_FEATURES
from pigeon.sandbox import control
from pigeon.sandbox.policy import PolicyMode
from pigeon.wire.answers import SourceRules
from pigeon.wire.choices import ALL_FEATURES, APPROVAL_MODES, VERDICTS, SandboxMode, to_alternatives
from support.source_tree import TREE

PAGE = TREE.source / "pigeon" / "frontends" / "serve" / "page"


def test_every_feature_changes_something() -> None:
    changing = {*feature_records(), *FORM_FEATURES, *BEHAVIOUR_FEATURES}
    assert changing == set(ALL_FEATURES)


def test_the_editor_and_the_page_have_a_text_for_each_approval_mode() -> None:
    assert tuple(MODES) == APPROVAL_MODES
    declared = re.search(r"^const MODES = \{(.*)\};$", (PAGE / "composer.js").read_text("utf-8"), re.MULTILINE)
    assert declared is not None
    assert tuple(re.findall(r'"?([\w-]+)"?: "', declared[1])) == APPROVAL_MODES


def test_every_verdict_has_a_list_of_rules_and_can_be_chosen_in_the_chat() -> None:
    assert [name for name in SourceRules.__struct_fields__ if name in VERDICTS] == list(VERDICTS)
    assert tuple(PermissionRules().by_verdict) == VERDICTS
    assert {choice.value for choice in DEFAULTS} == set(VERDICTS)


def test_every_sandbox_mode_has_its_place_in_the_order() -> None:
    assert set(control._MODES) == set(get_args(SandboxMode)) == {"off", *get_args(PolicyMode)}


@pytest.mark.parametrize("option", WORDS)
def test_the_help_of_an_option_names_each_word_that_it_takes(option: str) -> None:
    [text] = [text for names, _, text in list_option_rows() if option in names.split()]
    assert set(WORDS[option]) <= set(re.findall(r"[\w.-]*\w", text))


def test_alternatives_are_listed_as_a_sentence_has_them() -> None:
    assert [to_alternatives(words) for words in ("a", "ab", "abc")] == ["a", "a or b", "a, b or c"]
