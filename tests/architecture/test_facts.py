"""Each fact once: no name of a tool, an API, a feature of `hello` or the files of sessions outside its declaration.

What a tool does is declared at the tool and found by name in `tools/catalog.py`; what an API needs at its adapter;
which feature shows an event at its record; where sessions are and what they are called in the session store. So a new
one of these is added in one place. `scripts/house_facts.py` takes the names from these declarations, searches the
syntax trees (and the page's scripts) for them, and says which strings count.
"""

from __future__ import annotations

import ast
from pathlib import Path

import house_facts
import pytest
from house_facts import named_facts

from support.source_tree import TREE, hold

MOST_EXCEPTIONS = 15

# "path below src/pigeon": reason
EXCEPTIONS: dict[str, str] = {
    "cli/commands/all.py": "the command `pigeon demo`, which is not the API",
    "rpc/connection.py": "what each feature shows is decided here, for every connection",
    "rpc/session_connection.py": "the few features that change behaviour, each with its reason",
    "dialects/approval_questions.py": "the tools of oh-my-pi, whose questions its clients read",
    "cli/commands/mcp.py": "a client asks for the feature that it shows",
    "frontends/batch/batch_folder.py": "the files of a batch, which are not sessions",
    "frontends/batch/task_files.py": "the ending of task files, which are not sessions",
    "frontends/serve/conversation.py": "the command `bash` of the protocol, which is not the tool",
    "providers/catalog/built_in.py": "the name of a provider, which is that of its API",
    "providers/demo/guide.py": "the demo model calls tools by the names in its request, as models do",
    "sandbox/written_folders.py": "a file of the sandbox, which is no session",
    "sdk/conversation.py": "a client asks for the features that it uses",
    "transport/event_log.py": "the ending of its own files, which are not sessions",
    "trust/trust_file.py": "a file of its own, which is no session",
}


def test_nothing_is_named_outside_its_declaration() -> None:
    found = named_facts(TREE)
    assert [str(one) for one in found if one.path not in EXCEPTIONS] == []
    hold({one.path for one in found}, EXCEPTIONS)


def test_exceptions_are_few() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS


def test_the_names_are_those_of_the_declarations() -> None:
    names = house_facts.declared_names(TREE)
    assert {"bash", "todo", "tool_search", "multiedit"} <= names["tool"]
    assert "anthropic-messages" in names["api"]
    assert "deltas" in names["feature"]
    assert names["session file"] == {".jsonl"}


@pytest.mark.parametrize(
    "line",
    [
        'call.name == "read"',
        'event.tool_name in ("write", "edit")',
        'x = {"grep": 1, "find": 2}',
        'READING = ("read",)',
        'tools["todo"]',
        'self._toolset.offer("todo")',
        'mark = b\'"toolName":"todo"\'',
        '"bash" in self.toolset.active()',
        'model.api == "anthropic-messages"',
        '"trust" in self._features',
        'features.append("mcp")',
        'WANTED = ["deltas", "seq"]',
        'path.endswith(".jsonl")',
        'name = f"{time}_{id}.jsonl"',
        'SESSION_FILE = "session.jsonl"',
    ],
)
def test_a_name_is_found(line: str) -> None:
    assert list(house_facts.facts_in(ast.parse(line), Path("x.py"), house_facts.declared_names(TREE)))


@pytest.mark.parametrize(
    "line",
    [
        'access == "write"',
        'facts_of(call.name).kind == "edit"',
        'modes = ("always-ask", "write", "yolo")',
        'timeouts = {"connect": 1, "read": None, "write": None}',
        'Access = Literal["read", "write"]',
        'error_text(error, "read", path)',
        'if program in ("find", "fd", "xargs"): pass',
        'raw.get("permissions")',
        '"permissions" in raw',
        'say("Write the results to results.jsonl")',
        'say("a .jsonl file")',
    ],
)
def test_an_ordinary_word_is_not_taken_for_a_name(line: str) -> None:
    assert not list(house_facts.facts_in(ast.parse(line), Path("x.py"), house_facts.declared_names(TREE)))


def test_lists_of_tools_in_scripts_are_found() -> None:
    script = 'const CHANGING = ["edit", "write"];\nif (record.toolName === "bash") { go(["a", "edit"]); }\n'
    found = house_facts.facts_in_script(script, Path("x.js"), house_facts.declared_names(TREE))
    assert [one.line for one in found] == [1, 1, 2]


@pytest.mark.parametrize("line", ['await ask("hello", { features: ["seq", "mcp"] });', 'if (features.has("seq")) {'])
def test_features_in_scripts_are_found(line: str) -> None:
    found = house_facts.facts_in_script(line, Path("x.js"), house_facts.declared_names(TREE))
    assert "feature seq" in [f"{one.kind} {one.name}" for one in found]
