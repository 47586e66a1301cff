from __future__ import annotations

from pathlib import Path

from fakes.tool_runs import PlainFitter, workplace
from pigeon.agent.interfaces import Tool
from pigeon.system.process.start import ProcessOwner
from pigeon.tools.catalog import DEFAULT_TOOLS, built_in_tools


def test_the_built_in_tools_are_these(tmp_path: Path) -> None:
    tools = built_in_tools(workplace(tmp_path, ProcessOwner()), "/nowhere", fitter=PlainFitter())
    assert list(tools) == ["read", "bash", "edit", "write", "grep", "find", "ls"]
    assert DEFAULT_TOOLS == ("read", "bash", "edit", "write")
    assert [name for name, tool in tools.items() if tool.reads_only] == ["read", "grep", "find", "ls"]


def test_each_describes_itself(tmp_path: Path) -> None:
    for name, tool in built_in_tools(workplace(tmp_path, ProcessOwner()), "/nowhere", fitter=PlainFitter()).items():
        checked: Tool = tool
        assert checked.spec.name == name == tool.label
        assert tool.description
        assert tool.snippet
        assert set(tool.parameters.get("required", [])) <= set(tool.parameters["properties"])
