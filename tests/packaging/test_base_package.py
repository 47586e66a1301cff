"""The base package alone: RPC, the library and `-p` work with it, and what needs an extra names it."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from PIL import Image
from release_check import install_script, link_distributions, required_distributions

from pigeon.system.extras import EXTRAS
from support.agent_folders import AgentFolders
from support.agent_process import RpcProcess
from support.records import finished_messages, text_of
from support.source_tree import ROOT
from support.terminal import PtyChat

MARKDOWN = "Say **this** with `code`"
LIBRARY = """
import asyncio, pigeon

def add(first: int, second: int) -> int:
    "Add two numbers."
    return first + second

async def main():
    async with pigeon.Agent(model="demo", tools=[add], no_session=True) as agent:
        events = [event async for event in agent.prompt("run echo hi")]
        called = [event.tool_name for event in events if isinstance(event, pigeon.ToolExecutionEnd)]
        answer = await agent.run("list the files", output=list[str])
        print(called, answer.ended, type(answer.output).__name__)

asyncio.run(main())
print(pigeon.run_sync("hello", model="demo").text[:6])
"""


class BaseInstallation:
    """A virtual environment in which there is nothing but Pigeon and what its base needs."""

    def __init__(self, folder: Path) -> None:
        self.python = str(folder / "bin" / "python")
        self.command = [str(folder / "bin" / "pigeon")]
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        [site] = folder.glob("lib/python*/site-packages")
        # What an installer writes of this source, whatever has been installed where the tests run.
        about = site / "pigeon_agent-0.dist-info"
        about.mkdir()
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        needed = [f"Requires-Dist: {line}\n" for line in project["dependencies"]]
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pigeon-agent\nVersion: 0\n{''.join(needed)}")
        (site / "pigeon.pth").write_text(f"{ROOT / 'src'}\n")
        for name in ("pigeon", "pigeon-main"):
            install_script(ROOT / "bin" / name, folder / "bin" / name, self.python)
        link_distributions(required_distributions(metadata.PathDistribution(about)), folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseInstallation:
    return BaseInstallation(tmp_path_factory.mktemp("base") / "venv")


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


@pytest.fixture
def agent(base: BaseInstallation, folders: AgentFolders) -> Iterator[RpcProcess]:
    with RpcProcess(folders, "--model", "demo", "--dialect", "pi", program=base.command) as started:
        yield started


def call(base: BaseInstallation, folders: AgentFolders, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*base.command, *arguments],
        cwd=folders.work,
        env=folders.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def encode_image(side: int, form: str = "PNG") -> dict[str, str]:
    out = io.BytesIO()
    Image.new("RGB", (side, side), "red").save(out, form)
    return {"type": "image", "data": base64.b64encode(out.getvalue()).decode(), "mimeType": f"image/{form.lower()}"}


def test_no_package_of_an_extra_is_part_of_the_base(base: BaseInstallation) -> None:
    modules = sorted({module for modules in EXTRAS.values() for module in modules})
    look = f"from importlib.util import find_spec; print([name for name in {modules} if find_spec(name)])"
    assert subprocess.check_output([base.python, "-I", "-c", look], text=True) == "[]\n"


def test_a_host_gets_tools_and_a_page_without_any_extra(agent: RpcProcess, folders: AgentFolders) -> None:
    (folders.work / "notes.txt").write_text("from the base\n")
    ended = [record for record in agent.run("run cat notes.txt") if record["type"] == "tool_execution_end"]
    assert [text_of(record["result"]) for record in ended] == ["from the base\n"]
    agent.run("search for base in .")
    agent.run(MARKDOWN)
    page = Path(agent.ask("export_html", outputPath=str(folders.temp / "page.html"))["path"]).read_text()
    assert MARKDOWN in page
    assert "without formatting and colours, which need pigeon-agent[pages].</footer>" in page


def test_images_that_need_no_change_work_and_others_name_the_extra(agent: RpcProcess, folders: AgentFolders) -> None:
    images = [encode_image(8), encode_image(4000), encode_image(8, "BMP"), encode_image(9, "JPEG")]
    message = finished_messages(agent.run("look", images=images), "user")[0]
    assert [block for block in message["content"] if block["type"] == "image"] == [images[0], images[3]]
    assert text_of(message).count("the user can install pigeon-agent[images]") == 2
    for name, image in (("small.png", images[0]), ("large.png", images[1])):
        (folders.work / name).write_bytes(base64.b64decode(image["data"]))
    small, large = (
        next(record["result"] for record in agent.run(f"read {name}") if record["type"] == "tool_execution_end")
        for name in ("small.png", "large.png")
    )
    assert [block["type"] for block in small["content"]] == ["text", "image"]
    assert [block["type"] for block in large["content"]] == ["text"]
    assert "pigeon-agent[images]" in text_of(large)


def test_one_answer_is_printed_without_any_extra(base: BaseInstallation, folders: AgentFolders) -> None:
    done = call(base, folders, "-p", "--model", "demo", "run echo of-the-base")
    assert (done.returncode, done.stderr) == (0, "")
    assert "of-the-base" in done.stdout


def test_programs_run_agents_without_any_extra(base: BaseInstallation, folders: AgentFolders) -> None:
    done = subprocess.run(
        [base.python, "-I", "-c", LIBRARY], cwd=folders.work, env=folders.environment(), capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("['bash'] done list\nHello!\n", "", 0)


@pytest.mark.parametrize("arguments", [(), ("--plain",), ("do", "this"), ("--connect", "http://127.0.0.1:1/x")])
def test_the_chat_prints_the_line_to_type(base: BaseInstallation, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with PtyChat(tmp_path, columns=250, program=[*base.command, *arguments]) as chat:
        assert chat.wait_for_exit() == 1
        assert chat.text == (
            "Error: The chat needs packages that are not installed (prompt_toolkit is missing): "
            f"{base.python} -m pip install 'pigeon-agent[chat]'"
        )


def test_the_demo_is_a_tour_where_there_is_no_chat(base: BaseInstallation, tmp_path: Path) -> None:
    with PtyChat(tmp_path, columns=250, program=[*base.command, "demo"]) as chat:
        assert chat.wait_for_exit() == 0
        assert "pip install 'pigeon-agent[chat]'" in chat.text
        assert "Check your setup:" in chat.text


@pytest.mark.parametrize("arguments", [(), ("--link",)])
def test_a_server_prints_the_line_to_type(
    base: BaseInstallation, folders: AgentFolders, arguments: tuple[str, ...]
) -> None:
    done = call(base, folders, "serve", *arguments)
    said = "Error: pigeon serve needs packages that are not installed (starlette is missing): "
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{said}{base.python} -m pip install 'pigeon-agent[serve]'\n"


def test_a_batch_in_a_terminal_shows_its_progress_in_lines(base: BaseInstallation, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "a", "prompt": "hello"}) + "\n")
    words = ["batch", "tasks.jsonl", "--out", "results", "--", "--model", "demo"]
    with PtyChat(tmp_path, columns=250, program=[*base.command, *words]) as chat:
        assert chat.wait_for_exit() == 0, chat.text
        assert "1/1 · 1 done" in chat.text
        assert "Results: results/results.jsonl" in chat.text


def test_the_doctor_finds_nothing_broken_in_the_base(base: BaseInstallation, folders: AgentFolders) -> None:
    printed = json.loads(call(base, folders, "doctor", "--json", "--offline").stdout)
    found = {row["subject"]: row for row in printed}
    assert found["libraries"]["state"] == found["extras"]["state"] == "ok"
    assert found["extras"]["found"] == f"none; not installed: {', '.join(EXTRAS)}"
    assert found["extras"]["advice"] == f"for chat: {base.python} -m pip install 'pigeon-agent[chat]'"
