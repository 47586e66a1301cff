from __future__ import annotations

import pytest

from pigeon.system.process.variables import SECRET_NAMES, tool_environment

KEY = "sk-canary-0123456789"


@pytest.mark.parametrize("name", [*sorted(SECRET_NAMES), "QWEN_TOKEN_PLAN_CN_API_KEY", "XIAOMI_TOKEN_API_KEY"])
def test_keys_of_providers_are_not_seen_by_commands(name: str) -> None:
    assert KEY not in tool_environment({name: KEY, "HOME": "/h"}).values()


def test_everything_else_of_the_user_is() -> None:
    mine = {"HOME": "/h", "PATH": "/bin", "STRIPE_API_KEY": "of-the-project", "AWS_PROFILE": "dev"}
    assert mine.items() <= tool_environment(mine).items()


def test_keys_are_passed_on_when_asked_for() -> None:
    assert tool_environment({"OPENAI_API_KEY": KEY}, keep_provider_keys=True)["OPENAI_API_KEY"] == KEY


def test_names_of_a_models_file_and_values_in_use_are_hidden_too() -> None:
    seen = tool_environment(
        {"MY_MODEL_KEY": KEY, "COPY": KEY, "PART": f"Bearer {KEY}"},
        also_secret=["MY_MODEL_KEY"],
        shows_key=lambda value: KEY in value,
    )
    assert KEY not in seen.values()


def test_what_no_command_can_do_without_stays_even_if_a_key_command_names_it() -> None:
    mine = {"HOME": "/h", "PATH": "/bin", "HTTPS_PROXY": f"http://me:{KEY}@proxy"}
    assert (
        mine.items()
        <= tool_environment(mine, also_secret=["HOME", "PATH"], shows_key=lambda value: KEY in value).items()
    )


def test_the_session_of_an_outer_agent_does_not_leak_in() -> None:
    seen = tool_environment({"PI_SESSION_ID": "outer", "PI_MODEL": "m"}, session={"PI_SESSION_ID": "inner"})
    assert seen["PI_SESSION_ID"] == "inner"
    assert "PI_MODEL" not in seen


def test_commands_can_tell_that_an_agent_runs_them() -> None:
    assert tool_environment({})["PI_CODING_AGENT"] == "true"


def test_a_folder_of_ours_comes_first_on_the_path() -> None:
    assert tool_environment({"PATH": "/bin"}, bin_folder="/agent/bin")["PATH"] == "/agent/bin:/bin"
    assert tool_environment({}, bin_folder="/agent/bin")["PATH"] == "/agent/bin"
