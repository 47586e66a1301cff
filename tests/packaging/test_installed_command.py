"""The installed command starts Python isolated, however the installer has written which Python that is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from release_check import install_script

from pigeon import __version__
from pigeon.cli.main import SPOKEN_VERSIONS
from support.agent_folders import AgentFolders
from support.source_tree import ROOT

# What Python imports at its start, what the program imports, and the program itself.
PLANTED = ("sitecustomize", "usercustomize", "encodings", "re", "asyncio", "msgspec", "pigeon")
# Entries that mean the working folder or one in it, and the working folder by its name.
PYTHONPATHS = ("", ".", ":", "below", "below:", "./below:/nowhere", "WORK")


def install(folder: Path, python: str | None = None, first_lines: str | None = None) -> Path:
    """The command `pigeon` as an installer leaves it."""
    folder.mkdir(exist_ok=True)
    for name in ("pigeon", "pigeon-main"):
        install_script(ROOT / "bin" / name, folder / name, python or sys.executable)
    if first_lines is not None:
        rest = (folder / "pigeon-main").read_text().partition("\n")[2]
        (folder / "pigeon-main").write_text(first_lines + rest)
    return folder / "pigeon"


def run(command: list[str], folders: AgentFolders, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    environment = folders.environment(more)
    return subprocess.run(
        command, cwd=folders.work, env=environment, input=text, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.fixture
def folders(tmp_path: Path) -> AgentFolders:
    made = AgentFolders(tmp_path)
    made.configure()
    return made


@pytest.mark.parametrize("python_path", PYTHONPATHS)
def test_no_variable_of_python_makes_the_command_run_code_of_the_working_folder(
    folders: AgentFolders, tmp_path: Path, python_path: str
) -> None:
    mark = folders.temp / "ran"
    for folder in (folders.work, folders.work / "below"):
        folder.mkdir(exist_ok=True)
        for name in PLANTED:
            (folder / f"{name}.py").write_text(f"import io; io.open({str(mark)!r}, 'a').write({name!r})\n")
    variables = {
        "PYTHONPATH": python_path.replace("WORK", str(folders.work)),
        "PYTHONHOME": "",
        "PYTHONUSERBASE": ".",
        "PYTHONPLATLIBDIR": ".",
        "PYTHONSTARTUP": "re.py",
    }
    # `-p` has the agent in its process, and the command starts the helper of commands.
    asked = run([str(install(tmp_path / "bin")), "-p", "--model", "demo", "run echo hi"], folders, **variables)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert not mark.exists(), mark.read_text()


def test_the_name_in_a_link_to_the_command_counts(folders: AgentFolders, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "omp").symlink_to(install(tmp_path / "bin"))
    (links / "pi").symlink_to("omp")
    for name in ("omp", "pi"):
        for command in ([str(links / name)], ["sh", name]):
            ran = subprocess.run([*command, "--version"], cwd=links, capture_output=True, text=True, check=True)
            assert ran.stdout.strip() == SPOKEN_VERSIONS[name]
    found = run(["pigeon", "--version"], folders, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert found.stdout.strip() == __version__


@pytest.mark.skipif(shutil.which("bash") is None, reason="only bash looks in PATH for the script that it is to run")
def test_a_shell_that_finds_the_command_in_path_runs_nothing_of_the_working_folder(
    folders: AgentFolders, tmp_path: Path
) -> None:
    install(tmp_path / "bin")
    (folders.work / "pigeon-main").write_text("#!/bin/false\n\n")
    ran = run(["bash", "pigeon", "--version"], folders, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert (ran.stdout.strip(), ran.stderr) == (__version__, "")


@pytest.mark.parametrize(
    "first_lines",
    [
        "#!{python}\n",
        "#!{python} -E\n",
        "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python' \"$0\" \"$@\"\n' '''\n",
    ],
    ids=["pip", "pipx", "uv", "uv-relocatable"],
)
@pytest.mark.parametrize("name", ["bin", "a folder with $HOME and 'quotes -x' in its name"])
def test_the_python_is_the_one_that_the_installer_has_written(tmp_path: Path, first_lines: str, name: str) -> None:
    folder = tmp_path / name
    command = install(folder)
    # A script that stands for Python shows how it is started.
    (folder / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (folder / "python").chmod(0o755)
    in_shell = first_lines.startswith("#!/bin/sh")
    python = str(folder / "python").replace("'", "'\"'\"'" if in_shell else "'")
    install(folder, first_lines=first_lines.replace("{python}", python))
    ran = subprocess.run([command, "a b", "$x", "--y"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-I", str(folder / "pigeon-main"), str(command), "a b", "$x", "--y"]


def test_a_user_install_is_found(folders: AgentFolders, tmp_path: Path) -> None:
    """`pip install --user` installs where isolated Python does not look."""
    python = str(getattr(sys, "_base_executable", sys.executable))
    show = [python, "-c", "import site; print(site.getusersitepackages())"]
    site = Path(run(show, folders).stdout.strip())
    site.mkdir(parents=True)
    (site / "pigeon.pth").write_text(f"{ROOT / 'src'}\n")
    (site / "usercustomize.py").write_text("raise SystemExit('usercustomize was imported')\n")
    ran = run([str(install(tmp_path / "bin", python)), "--version"], folders)
    assert (ran.stdout.strip(), ran.stderr) == (__version__, "")
    ran = run([str(tmp_path / "bin" / "pigeon"), "--version"], folders, HOME=".")
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"Error: {python} does not find Pigeon, and this command ignores PYTHONPATH. ")


@pytest.mark.skipif(sys.platform != "linux", reason="warm parents need Linux")
def test_a_user_install_starts_warm(folders: AgentFolders, tmp_path: Path) -> None:
    python = str(getattr(sys, "_base_executable", sys.executable))
    command = str(install(tmp_path / "bin", python))
    site = Path(run([python, "-c", "import site; print(site.getusersitepackages())"], folders).stdout.strip())
    site.mkdir(parents=True)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (site / "pigeon.pth").write_text("\n".join([str(ROOT / "src"), *libraries, ""]))
    try:
        ran = run([command, "warm"], folders)
        assert (ran.returncode, ran.stderr) == (0, "")
        ran = run([command, "-p", "--model", "demo", "hello"], folders)
        assert (ran.returncode, ran.stderr) == (0, "")
        (row,) = run([command, "warm", "--status"], folders).stdout.splitlines()[1:]
        assert row.split()[1:3] == ["1", "0"]
    finally:
        run([command, "warm", "--stop"], folders)


def test_what_is_missing_is_named(folders: AgentFolders, tmp_path: Path) -> None:
    command = install(tmp_path / "bin")
    main = tmp_path / "bin" / "pigeon-main"
    ran = run([sys.executable, str(main)], folders)
    assert (ran.returncode, ran.stderr) == (1, "Error: please start `pigeon` instead\n")
    main.unlink()
    ran = run([str(command)], folders)
    assert (ran.returncode, ran.stderr) == (1, f"Error: {main} cannot be read; please install Pigeon again\n")


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="shows names as Linux does")
def test_the_process_has_the_name_of_the_command(folders: AgentFolders, tmp_path: Path) -> None:
    command = install(tmp_path / "bin")
    shown = folders.temp / "name"
    extension = folders.temp / "shows_name.py"
    extension.write_text(
        f"import shutil\nfrom pigeon.extensions import Extension\next = Extension('x')\n"
        f"shutil.copyfile('/proc/self/comm', {str(shown)!r})\n"
    )
    run([str(command), "--mode", "rpc", "--model", "demo", "--no-session", "--extension", str(extension)], folders)
    assert shown.read_text() == "pigeon\n"


def test_the_command_is_no_script_that_installers_make() -> None:
    """An entry point would be such a script, which starts Python without -I."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "scripts" not in project["project"]
    assert project["tool"]["setuptools"]["script-files"] == ["bin/pigeon", "bin/pigeon-main"]
