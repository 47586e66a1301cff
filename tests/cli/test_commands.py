"""The commands for people: sessions, models, settings, the doctor, the demo, and what is said about wrong calls."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import ModelServer
from pigeon.cli.commands import doctor
from pigeon.cli.commands.all import COMMANDS
from pigeon.cli.running import run
from pigeon.wire.errors import StartupError, UsageError
from support.agent_folders import AgentFolders, providers
from support.agent_process import RpcProcess, RunningProgram

Run = Callable[..., str]


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


@pytest.fixture
def pigeon(folders: AgentFolders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls a command in this process, and gives what it printed; `code` is the exit code that it must have."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in folders.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folders.work)

    def run_command(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run("pigeon", list(arguments)) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run_command


@pytest.fixture
def talks(folders: AgentFolders) -> list[str]:
    """The ids of two sessions, the older one first."""
    ids = []
    with RpcProcess(folders, "--model", "demo") as agent:
        for text in ("list the files", "read the Müller report"):
            agent.run(text)
            ids.append(str(agent.ask("get_state")["sessionId"]))
            agent.ask("new_session")
    return ids


def test_sessions_are_listed_searched_and_shown(pigeon: Run, talks: list[str]) -> None:
    listed = pigeon("sessions")
    assert listed.index("Müller") < listed.index("list the files")
    assert [row["id"] for row in json.loads(pigeon("sessions", "--json"))] == talks[::-1]
    found = json.loads(pigeon("sessions", "search", "müller", "REPORT", "--json"))
    assert [row["id"] for row in found] == [talks[1]]
    assert "No session contains" in pigeon("sessions", "search", "nothing of the kind", code=1)
    shown = pigeon("sessions", "show", talks[0])
    assert "> list the files" in shown
    assert "[bash]" in shown
    assert json.loads(pigeon("sessions", "show", talks[0], "--json"))[0]["id"] == talks[0]


def test_sessions_of_other_folders_are_listed_with_all(
    pigeon: Run, talks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "There are no sessions in this folder" in pigeon("sessions")
    assert len(json.loads(pigeon("sessions", "list", "--all", "--json"))) == 2
    assert len(json.loads(pigeon("sessions", "--all", "--json", "--limit", "1"))) == 1
    assert "> list the files" in pigeon("sessions", "show", talks[0])


def test_a_session_is_renamed_and_exported(pigeon: Run, talks: list[str], folders: AgentFolders) -> None:
    pigeon("sessions", "rename", talks[0], "The", "first", "one")
    assert "The first one" in pigeon("sessions")
    assert "Exported to: " in pigeon("sessions", "export", talks[0], "page.html")
    assert "Exported to: pigeon-the-first-one-" in pigeon("sessions", "export", talks[0])
    assert "The first one" in (folders.work / "page.html").read_text("utf-8")


def test_a_deleted_session_comes_back_with_undelete(pigeon: Run, talks: list[str]) -> None:
    before = pigeon("sessions", "--json")
    path = Path(json.loads(before)[1]["path"])
    content = path.read_bytes()
    (path.parent / path.stem).mkdir(exist_ok=True)
    (path.parent / path.stem / "output.txt").write_text("kept")
    assert f"Undo: pigeon sessions undelete {talks[0][:8]}" in pigeon("sessions", "delete", talks[0])
    assert not path.exists()
    assert talks[0] not in pigeon("sessions", "--json")
    assert [row["id"] for row in json.loads(pigeon("sessions", "trash", "--json"))] == [talks[0]]
    pigeon("sessions", "undelete")
    assert path.read_bytes() == content
    assert (path.parent / path.stem / "output.txt").read_text() == "kept"
    assert "The trash is empty" in pigeon("sessions", "trash")
    assert {row["id"] for row in json.loads(pigeon("sessions", "--json"))} == set(talks)


def test_a_session_that_is_being_written_cannot_be_deleted_or_renamed(pigeon: Run, folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("list the files")
        session = str(agent.ask("get_state")["sessionId"])
        for action in (("delete", session), ("rename", session, "x")):
            with pytest.raises(StartupError, match="process is writing this session"):
                pigeon("sessions", *action)
        assert agent.run("again")


@pytest.mark.parametrize("action", ["show", "export", "delete"])
def test_a_session_that_is_not_there_is_told(pigeon: Run, action: str) -> None:
    with pytest.raises(StartupError, match="There is no session 0815"):
        pigeon("sessions", action, "0815")


def test_models_are_listed_with_price_and_key(pigeon: Run, folders: AgentFolders) -> None:
    folders.configure(providers("http://localhost:1"))
    mine = pigeon("models").splitlines()
    assert mine[0].split() == ["provider", "model", "context", "max-out", "thinking", "images", "$", "in/out", "key"]
    assert [line.split()[:2] for line in mine[1:]] == [["fake", "fake-1"], ["fake", "fake-2"]]
    assert mine[1].split()[-2:] == ["1/2", "yes"]
    found = json.loads(pigeon("models", "claude", "sonnet", "--json"))
    assert found
    assert not [row for row in found if row["hasKey"]]
    assert "No model matches" in pigeon("models", "nothing of the kind", code=1)
    assert 'No model matches "claude sonet". Did you mean sonnet?' in pigeon("models", "claude", "sonet", code=1)


def test_the_list_of_models_that_programs_read_has_the_columns_of_pi(pigeon: Run, folders: AgentFolders) -> None:
    assert pigeon("--list-models").startswith("No models available")
    folders.configure(providers("http://localhost:1"))
    head, *rows = pigeon("--list-models").splitlines()
    assert head.split() == ["provider", "model", "context", "max-out", "thinking", "images"]
    assert [row.split()[:2] for row in rows] == [["fake", "fake-1"], ["fake", "fake-2"]]
    assert pigeon("--list-models", "fake-2").splitlines()[1:] == rows[1:]
    assert pigeon("--list-models", "nothing of the kind") == 'No models matching "nothing of the kind"\n'


def test_without_a_key_models_says_how_to_get_one(pigeon: Run) -> None:
    assert "export ANTHROPIC_API_KEY" in pigeon("models", code=1)
    assert pigeon("models", "--json", code=1) == "[]\n"


def test_a_model_that_is_set_is_checked_at_once_and_the_doctor_gives_the_same_reason(
    pigeon: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    reason = "cannot be used, because there is no API key for anthropic/claude-sonnet-5: set ANTHROPIC_API_KEY"
    assert reason in pigeon("config", "set", "defaultModel", "claude-sonnet-5")
    found = next(
        one for one in json.loads(pigeon("doctor", "--offline", "--json", code=1)) if one["subject"] == "model"
    )
    assert (found["state"], reason in found["found"]) == ("broken", True)
    assert 'model "nonsense" not found' in pigeon("config", "set", "defaultModel", "nonsense")
    assert pigeon("config", "set", "defaultModel", "openai/gpt-5.2:high") == "defaultModel = openai/gpt-5.2:high\n"
    findings = json.loads(pigeon("doctor", "--offline", "--json"))
    assert [one["found"] for one in findings if one["subject"] == "model"] == [
        "openai/gpt-5.2, unless --model names another"
    ]


def test_the_doctor_knows_the_settings_of_a_trusted_project(pigeon: Run, folders: AgentFolders) -> None:
    (folders.work / ".pigeon").mkdir()
    pigeon("config", "set", "--project", "defaultModel", "demo")
    assert "demo/guide" not in pigeon("doctor", "--offline", code=1)
    pigeon("config", "set", "defaultProjectTrust", "always")
    assert "demo/guide" in pigeon("doctor", "--offline", code=1)


def test_settings_are_set_read_and_unset_and_the_rest_of_the_file_stays(pigeon: Run, folders: AgentFolders) -> None:
    path = folders.agent / "settings.json"
    path.write_text('{\n    "quietStartup": true,\n    "retry": {"maxRetries": 2}\n}\n')
    pigeon("config", "set", "retry.maxRetries", "5")
    pigeon("config", "set", "defaultModel", "claude-sonnet-5")
    pigeon("config", "set", "enabledModels", '["a", "b"]')
    assert (
        path.read_text()
        == json.dumps(
            {
                "quietStartup": True,
                "retry": {"maxRetries": 5},
                "defaultModel": "claude-sonnet-5",
                "enabledModels": ["a", "b"],
            },
            indent=4,
        )
        + "\n"
    )
    assert pigeon("config", "get", "retry.maxRetries") == "5\n"
    assert pigeon("config", "get", "defaultModel") == "claude-sonnet-5\n"
    assert pigeon("config", "get", "retry.baseDelayMs") == "2000\n"
    pigeon("config", "unset", "retry.maxRetries")
    assert "retry" not in json.loads(path.read_text())
    assert pigeon("config", "path") == f"{path}\n"
    rows = [line.split() for line in pigeon("config").splitlines()]
    assert ["defaultModel", "claude-sonnet-5", "file"] in rows
    assert ["steeringMode", "one-at-a-time", "default"] in rows
    assert json.loads(pigeon("config", "--json"))["steeringMode"] == "one-at-a-time"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["set", "defaultModle", "x"], "There is no setting defaultModle. Did you mean defaultModel?"),
        (["set", "retry.maxRetrys", "1"], "There is no setting retry.maxRetrys. Did you mean retry.maxRetries?"),
        (
            ["set", "retry.maxRetries", "many"],
            "retry.maxRetries: expected an integer, got a string. Nothing was changed",
        ),
        (["set", "steeringMode", "sideways"], "steeringMode"),
        (["set", "limits.turns", "-1"], "turns"),
        (["get", "nothing"], "There is no setting nothing."),
        (["set", "--project", "permissions", "{}"], "permissions is a personal setting"),
        (["set", "retry"], "pigeon config set needs VALUE"),
        (["sett", "retry", "1"], 'pigeon config cannot "sett". Did you mean set?'),
    ],
)
def test_a_setting_that_cannot_be_changes_nothing(
    pigeon: Run, folders: AgentFolders, arguments: list[str], error: str
) -> None:
    before = (folders.agent / "settings.json").read_bytes()
    with pytest.raises(UsageError) as refused:
        pigeon("config", *arguments)
    assert error.lower() in str(refused.value).lower()
    assert (folders.agent / "settings.json").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "error"), [('{"a": 1} // mine', "has comments"), ("{broken", "Fix the file first")]
)
def test_a_file_that_would_lose_something_is_not_written(
    pigeon: Run, folders: AgentFolders, content: str, error: str
) -> None:
    (folders.agent / "settings.json").write_text(content)
    with pytest.raises(StartupError, match=error):
        pigeon("config", "set", "defaultModel", "x")
    assert (folders.agent / "settings.json").read_text() == content


def test_an_editor_opens_the_settings_and_what_is_wrong_is_told(
    pigeon: Run, folders: AgentFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders.agent / "settings.json").unlink()
    program = "import sys; open(sys.argv[1], 'w').write('{x')"
    monkeypatch.setenv("VISUAL", f'{sys.executable} -c "{program}"')
    assert "settings.json" in pigeon("config", "edit", code=1)
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    with pytest.raises(StartupError, match="cannot be started"):
        pigeon("config", "edit")


def by_subject(printed: str) -> dict[str, dict[str, Any]]:
    return {row["subject"]: row for row in json.loads(printed)}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def test_the_doctor_says_what_is_missing_and_what_to_do(pigeon: Run) -> None:
    found = by_subject(pigeon("doctor", "--json", code=1))
    assert found["keys"]["state"] == "broken"
    assert "ANTHROPIC_API_KEY" in found["keys"]["advice"]
    assert found["extras"]["found"].startswith("chat, images, mcp, pages, ")
    assert {found[name]["state"] for name in ("pigeon", "libraries", "extras", "folder", "shell", "settings")} == {"ok"}
    assert Path(found["sandbox"]["advice"].rpartition("see ")[2]).is_file()
    assert found["sandbox"]["found"]
    printed = pigeon("doctor", code=1)
    assert "broken  keys" in printed
    assert "1 broken" in printed


def test_every_check_of_the_doctor_is_in_its_table() -> None:
    written = [made for name, made in vars(doctor).items() if name.startswith("diagnose_") and name != "diagnose_all"]
    assert list(doctor.DIAGNOSES) == written


def test_the_doctor_says_where_there_are_no_settings(pigeon: Run, folders: AgentFolders) -> None:
    file = folders.agent / "settings.json"
    file.write_text("{}")
    assert by_subject(pigeon("doctor", "--json", "--offline", code=1))["settings"]["found"] == str(file)
    file.unlink()
    found = by_subject(pigeon("doctor", "--json", "--offline", code=1))["settings"]["found"]
    assert found == f"none, so the defaults apply ({file} does not exist)"


def test_the_doctor_asks_each_server_and_sees_wrong_files_and_keys(
    pigeon: Run, folders: AgentFolders, server: ModelServer
) -> None:
    described = providers(server.url)
    described["providers"]["gone"] = {**described["providers"]["fake"], "baseUrl": "http://127.0.0.1:9"}
    folders.configure(described, {"shellPath": "/nowhere/bash", "steeringMode": "sideways"})
    found = by_subject(pigeon("doctor", "--json", code=1))
    assert found["gone"]["found"] == (
        'http://127.0.0.1:9: The provider "gone" cannot be reached, because nothing accepts connections at '
        '127.0.0.1:9: start the server, or correct its "baseUrl" in models.json'
    )
    assert found["fake"]["state"] == "ok"
    assert found["shell"]["state"] == found["settings"]["state"] == "broken"
    folders.configure(providers("http://127.0.0.1:9"))
    assert "Everything works" in pigeon("doctor", "--offline")


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def test_the_doctor_says_which_key_a_server_refuses(pigeon: Run, folders: AgentFolders) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{refusing.server_port}"
        folders.configure(providers(address))
        found = by_subject(pigeon("doctor", "--json", code=1))["fake"]
        refusing.shutdown()
    assert found["found"] == f"{address} refuses the API key from models.json (status 401)"
    assert found["advice"] == "replace it there with a valid one"


def test_the_doctor_runs_key_commands_behind_the_wall_that_the_settings_ask_for(
    pigeon: Run, folders: AgentFolders, server: ModelServer
) -> None:
    described = providers(server.url)
    described["providers"]["fake"]["apiKey"] = "!touch $HOME/touched; echo printed-$PIGEON_SANDBOX"
    for settings, touched in ({}, True), ({"sandbox": "workspace"}, False):
        folders.configure(described, settings)
        assert by_subject(pigeon("doctor", "--json"))["fake"]["state"] == "ok"
        assert (folders.home / "touched").exists() is touched
        (folders.home / "touched").unlink(missing_ok=True)
    assert list(folders.temp.glob("pigeon-sandbox-*")) == []


def test_the_demo_shows_a_tour_without_a_terminal(pigeon: Run, folders: AgentFolders) -> None:
    printed = pigeon("demo")
    assert "you     list the files" in printed
    assert "notes.txt" in printed
    assert list(folders.work.iterdir()) == list(folders.temp.glob("pigeon-demo-*")) == []


def test_help_has_commands_and_options_in_groups(pigeon: Run) -> None:
    page = pigeon("--help")
    assert page == pigeon("help") == pigeon("help", "help")
    for name in COMMANDS:
        assert f"\n  {name} " in page
        if name != "help":
            own = pigeon("help", name)
            assert own == pigeon(name, "--help") == pigeon("--help", name)
            assert own.startswith(f"pigeon {name}: ")
    assert "--no-lsp" not in page


def test_help_fits_the_terminal(pigeon: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 80 < max(map(len, pigeon("help").splitlines())) <= 100
    monkeypatch.setenv("COLUMNS", "80")
    shown = {example for command in COMMANDS.values() for example, _ in command.examples}
    for name in ("", *COMMANDS):
        lines = pigeon("help", *name.split()).splitlines()
        # What is copied stays in one piece.
        assert [line for line in lines if len(line) > 80 and line.strip() not in shown] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["sesions"], 'There is no command "sesions". Did you mean: pigeon sessions?'),
        (["Sessions"], 'There is no command "Sessions". Did you mean: pigeon sessions?'),
        (["modles", "sonnet"], "Did you mean: pigeon models?"),
        (["--model", "demo", "sessions"], "sessions is a command, and commands must come first"),
        (["help", "sesions"], 'There is no command "sesions". Did you mean sessions?'),
        (["help", "me"], "To ask the model, put the prompt in quotes"),
        (["sessions", "lst"], 'pigeon sessions cannot "lst". Did you mean list?'),
        (["sessions", "--alll"], "pigeon sessions has no option --alll. Did you mean --all?"),
        (["sessions", "show"], "pigeon sessions show needs ID"),
        (["sessions", "show", "a", "b"], 'pigeon sessions show does not know what to do with "b"'),
        (["sessions", "--limit", "none"], "--limit must be a whole number"),
        (["doctor", "now"], 'pigeon doctor does not know what to do with "now"'),
        (["completions"], "pigeon completions needs bash|zsh|fish"),
        (["completions", "tcsh"], "There are completions for bash, zsh, fish"),
        (["--no-ui"], "--no-ui requires --mode rpc"),
        *(([word, "x"], f'pigeon -- "{word} x"') for word in ("install", "remove", "uninstall", "update", "list")),
        (["install"], 'There is no command "install": Pigeon has no package manager.'),
    ],
)
def test_a_wrong_call_is_an_error_that_says_what_was_meant(pigeon: Run, arguments: list[str], error: str) -> None:
    with pytest.raises(UsageError) as refused:
        pigeon(*arguments)
    assert error in str(refused.value)


def test_the_trash_is_private(pigeon: Run, talks: list[str], folders: AgentFolders) -> None:
    pigeon("sessions", "delete", talks[0])
    assert stat.S_IMODE((folders.agent / "trash").stat().st_mode) == 0o700


def test_an_empty_id_names_no_session(pigeon: Run, folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("the only one")
    with pytest.raises(UsageError, match="empty"):
        pigeon("sessions", "delete", "")
    assert "the only one" in pigeon("sessions")


def test_the_undo_of_a_deletion_names_one_session_of_several_from_the_same_minute(
    pigeon: Run, talks: list[str]
) -> None:
    hints = [pigeon("sessions", "delete", one).split("Undo: pigeon ")[1].split() for one in talks]
    listed = [row.split()[0] for row in pigeon("sessions", "trash").splitlines()[1 : 1 + len(talks)]]
    assert sorted(_begun_by(one, talks) for one in listed) == sorted(talks)
    for hint in hints:
        assert "Brought back" in pigeon(*hint)


def _begun_by(id: str, ids: list[str]) -> str:
    (found,) = [one for one in ids if one.startswith(id)]
    return found


def test_the_ids_in_a_list_are_short_and_name_one_session_each(pigeon: Run, talks: list[str]) -> None:
    shown = pigeon("sessions").splitlines()[1:]
    assert {_begun_by(row.split()[0], talks) for row in shown} == set(talks)
    (found,) = pigeon("sessions", "search", "Müller").splitlines()[1:]
    assert _begun_by(found.split()[0], talks)


@pytest.mark.parametrize("number", ["0", "-1", "x", "\u00b2", "\u0663", "9" * 5000])
def test_a_number_of_sessions_that_cannot_be_is_told(pigeon: Run, number: str) -> None:
    with pytest.raises(UsageError, match="--limit must be a whole number of at least 1"):
        pigeon("sessions", f"--limit={number}")


def test_a_group_of_settings_is_shown_with_the_defaults_of_what_is_not_set(pigeon: Run) -> None:
    default = json.loads(pigeon("config", "get", "retry"))
    pigeon("config", "set", "retry.maxRetries", "5")
    assert json.loads(pigeon("config", "get", "retry")) == {**default, "maxRetries": 5}
    assert isinstance(default["provider"]["maxRetries"], int)
    assert pigeon("config", "get", "retry.provider.timeoutMs") == "null\n"


def test_half_of_a_surrogate_pair_does_not_keep_sessions_and_settings_from_being_shown(
    pigeon: Run, folders: AgentFolders
) -> None:
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("hello stranger")
        path = Path(str(agent.ask("get_state")["sessionFile"]))
    path.write_bytes(path.read_bytes().replace(b"stranger", b"\\ud83d"))
    assert "hello \ufffd" in pigeon("sessions")
    assert "hello \ufffd" in pigeon("sessions", "show", str(path))
    (folders.agent / "settings.json").write_text('{"defaultModel": "\\ud83d", "retry": 5}')
    assert "Warning: retry is ignored" in pigeon("config")
    pigeon("config", "set", "defaultProvider", "fake")
    assert json.loads((folders.agent / "settings.json").read_text())["defaultModel"] == "\ud83d"


def test_an_id_in_a_file_leads_nowhere_out_of_the_trash(pigeon: Run, folders: AgentFolders) -> None:
    with RpcProcess(folders, "--model", "demo") as agent:
        agent.run("hello")
        state = agent.ask("get_state")
    path = Path(str(state["sessionFile"]))
    path.write_bytes(path.read_bytes().replace(str(state["sessionId"]).encode(), b"a/../../../b"))
    pigeon("sessions", "delete", str(path))
    assert len(list((folders.agent / "trash").iterdir())) == 1
    assert not (folders.agent.parent / "b").exists()
    pigeon("sessions", "undelete")
    assert path.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("permissions", '{"default": "never"}'), ("permissions", "5"), ("permissions.deny", '["bash(("]')],
)
def test_permission_rules_that_cannot_be_are_not_set(pigeon: Run, folders: AgentFolders, key: str, value: str) -> None:
    before = (folders.agent / "settings.json").read_text()
    with pytest.raises(UsageError, match=r"permissions.*Nothing was changed"):
        pigeon("config", "set", key, value)
    assert (folders.agent / "settings.json").read_text() == before


def test_the_doctor_sees_wrong_permission_rules_and_a_missing_folder_for_temporary_files(
    pigeon: Run, folders: AgentFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.configure(settings={"permissions": {"default": "never"}})
    monkeypatch.setenv("TMPDIR", str(folders.temp / "gone"))
    found = {one["subject"]: one["state"] for one in json.loads(pigeon("doctor", "--offline", "--json", code=1))}
    assert (found["settings"], found["temporary"]) == ("broken", "broken")


def test_a_change_of_settings_waits_for_another_that_is_under_way(pigeon: Run, folders: AgentFolders) -> None:
    settings = folders.agent / "settings.json"
    folder = os.open(folders.agent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    call = RunningProgram(folders, ("config", "set", "defaultModel", "one"))
    settings.write_text('{"defaultProvider": "other"}')
    assert not select.select([call.process.stdout], [], [], 0.5)[0]
    os.close(folder)
    assert call.wait_for_end().code == 0
    assert json.loads(settings.read_text()) == {"defaultProvider": "other", "defaultModel": "one"}


def test_a_tour_that_is_ended_by_a_signal_leaves_no_folder(folders: AgentFolders) -> None:
    calling = RunningProgram(folders, ("demo",))
    calling.process.stdin.close()
    deadline = time.monotonic() + 20
    while not list(folders.temp.glob("pigeon-demo-*/notes.txt")):
        assert time.monotonic() < deadline
    calling.process.send_signal(signal.SIGTERM)
    assert (calling.wait_for_end().code, list(folders.temp.glob("pigeon-demo-*"))) == (143, [])


def test_what_is_damaged_in_the_trash_is_told(pigeon: Run, folders: AgentFolders, talks: list[str]) -> None:
    pigeon("sessions", "delete", talks[0])
    (place,) = (folders.agent / "trash").iterdir()
    (place / "deleted.json").write_text("{")
    assert pigeon("sessions", "trash").startswith(f"Warning: {place} cannot be read")
