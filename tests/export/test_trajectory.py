"""A session as a trajectory: the rules of the form that Harbor's model has (`make interop` asks that itself)."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from pigeon.app.pages import export_trajectory
from pigeon.wire.errors import StartupError
from support.agent_folders import AgentFolders
from support.agent_process import run_pigeon
from support.sessions import SECRET, SESSIONS, environment_in, rich_session, session_text

OF_AGENTS = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
OF_STEPS = {
    *("step_id", "timestamp", "source", "message", "observation", "is_copied_context", "llm_call_count", "extra"),
    *OF_AGENTS,
}
OF_METRICS = {
    *("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids", "completion_token_ids"),
    *("logprobs", "extra"),
}
Document = dict[str, Any]


def export_document(text: str, folder: Path, leaf: str = "") -> Document:
    (folder / "session.jsonl").write_text(text)
    path = folder / "out.json"
    export_trajectory(environment_in(folder), str(folder / "session.jsonl"), str(path), leaf)
    document: Document = json.loads(path.read_text("utf-8"))
    check(document, folder)
    return document


def check(document: Document, folder: Path) -> None:
    """The rules of the form."""
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["agent"].keys() <= {"name", "version", "model_name", "tool_definitions", "extra"}
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    assert document["final_metrics"]["total_steps"] == len(document["steps"])
    for step in document["steps"]:
        assert step.keys() <= OF_STEPS
        assert step["source"] in ("user", "agent", "system")
        assert step["source"] == "agent" or not step.keys() & set(OF_AGENTS)
        assert step.get("metrics", {}).keys() <= OF_METRICS
        calls = {made["tool_call_id"] for made in step.get("tool_calls", [])}
        for result in step.get("observation", {}).get("results", []):
            assert result.get("source_call_id") in {None, *calls}
        contents = [step["message"], *(one["content"] for one in step.get("observation", {}).get("results", []))]
        for part in (part for content in contents if isinstance(content, list) for part in content):
            assert part.keys() == ({"type", "text"} if part["type"] == "text" else {"type", "source"})
            assert part["type"] == "text" or (folder / part["source"]["path"]).exists()


def outline(document: Document) -> list[str]:
    return [
        f"{'=' if step.get('is_copied_context') else ''}{step['source']} {step['message']}"
        for step in document["steps"]
    ]


def test_behind_a_compaction_the_kept_steps_stand_again_as_copies(tmp_path: Path) -> None:
    document = export_document(SESSIONS["twice compacted"], tmp_path)
    assert outline(document) == [
        "user one",
        "agent ",
        "agent done one",
        "system So far.",
        "=agent done one",
        "user two",
        "agent done two",
        "system So far.",
        "=agent done one",
        "=user two",
        "=agent done two",
        "user three",
        "agent done three",
    ]
    assert not [step for step in document["steps"] if step.get("is_copied_context") and "metrics" in step]
    # Four answers and two summaries.
    assert document["final_metrics"]["total_cost_usd"] == pytest.approx(0.018)
    assert document["final_metrics"]["total_prompt_tokens"] == 6 * 33
    assert document["steps"][1]["observation"]["results"][0]["source_call_id"] == "c1"


def test_the_active_branch_is_exported_and_another_on_request(tmp_path: Path) -> None:
    document = export_document(SESSIONS["branches"], tmp_path)
    assert outline(document) == ["user one", "agent first", "user right", "agent right"]
    assert document["extra"]["other_leaf_ids"] == ["e4"]
    assert outline(export_document(SESSIONS["branches"], tmp_path, "e4"))[2:] == ["user left", "agent left"]
    with pytest.raises(StartupError, match="There is no entry e9"):
        export_document(SESSIONS["branches"], tmp_path, "e9")


def test_an_answer_has_its_model_thinking_metrics_and_token_ids(tmp_path: Path) -> None:
    step = export_document(SESSIONS["thinking and declared tools"], tmp_path)["steps"][1]
    assert (step["model_name"], step["reasoning_content"], step["reasoning_effort"]) == ("p/m", "hm", "high")
    assert step["metrics"] == {
        "prompt_tokens": 33,
        "completion_tokens": 5,
        "cached_tokens": 20,
        "cost_usd": 0.003,
        "extra": {"cache_write_tokens": 3},
    }
    assert step["extra"]["duration_ms"] == 7
    metrics = export_document(SESSIONS["token ids"], tmp_path)["steps"][1]["metrics"]
    assert (metrics["prompt_token_ids"], metrics["completion_token_ids"]) == ([1, 2], [3, 4])
    assert metrics["logprobs"] == [-0.1, -0.2]


def test_tools_failures_and_lost_results_have_their_places(tmp_path: Path) -> None:
    tools = export_document(SESSIONS["thinking and declared tools"], tmp_path)["agent"]["tool_definitions"]
    assert [tool["function"]["name"] for tool in tools] == ["bash"]
    failed = export_document(SESSIONS["retried"], tmp_path)["steps"][1]
    assert failed["extra"]["error"] == "Overloaded"
    assert failed["extra"]["left_out_of_context"] is True
    lost = export_document(SESSIONS["a result without its call"], tmp_path)["steps"][1]
    assert (lost["source"], lost["observation"]["results"][0]["content"]) == ("system", "ok")


def test_images_become_files_and_secrets_are_masked(tmp_path: Path) -> None:
    document = export_document(rich_session(), tmp_path)
    pictures = sorted((tmp_path / "out-images").iterdir())
    assert [picture.name for picture in pictures] == ["image-1.png", "image-2.png"]
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert SECRET not in json.dumps(document)
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o600


def test_a_session_without_words_has_no_trajectory(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="has no messages"):
        export_document(session_text(), tmp_path)


def test_the_command_writes_it_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    (folders.work / "s.jsonl").write_text(SESSIONS["branches"])
    done = run_pigeon(folders, "sessions", "export", "./s.jsonl", "--format", "atif")
    assert done.code == 0
    assert re.search(r"Exported to: pigeon-session-s\.atif\.json", done.out)
    check(json.loads((folders.work / "pigeon-session-s.atif.json").read_text()), folders.work)
    wrong = {("--format", "pdf"): "must be one of html, atif", ("--leaf", "e4"): "needs --format atif"}
    for words, problem in wrong.items():
        refused = run_pigeon(folders, "sessions", "export", "./s.jsonl", *words)
        assert refused.code == 2
        assert problem in refused.err
