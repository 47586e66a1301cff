"""Every way out that we could think of: it works without the wall and not behind it, as root and as another user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import pigeon
from support import sandbox_escapes

NOBODY = 65534
TESTS = Path(sandbox_escapes.__file__).parents[1]
SOURCE = Path(pigeon.__file__).parents[1]
PACKAGES = sysconfig.get_paths()["platlib"]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the walls of Linux")


def programs_for(user: int) -> str | None:
    """An interpreter that another user may run, with our packages."""
    wanted = f"import msgspec, sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    for program in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        try:
            ran = subprocess.run(
                [program, "-c", wanted],
                check=False, env={"PYTHONPATH": PACKAGES}, cwd="/", user=user, group=user, extra_groups=[],
            )  # fmt: skip
            # What can be started may still be out of sight for what it starts.
            seen = subprocess.run(["test", "-x", program], check=False, user=user, group=user, extra_groups=[])
        except OSError:
            continue
        if ran.returncode == seen.returncode == 0:
            return program
    return None


def attempts(folder: Path, user: int, builders: list[str]) -> dict[str, dict[str, bool]]:
    """What escaped, by builder, where the targets and the attempts are those of one user."""
    own = user == os.getuid()
    program = sys.executable if own else programs_for(user)
    if program is None:
        pytest.skip("no interpreter that another user may run")
    os.chmod(folder, 0o755)
    as_root = folder / "id-as-root"
    shutil.copy("/usr/bin/id", as_root)
    place = folder / f"user-{user}"
    place.mkdir()
    if os.getuid() == 0:
        os.chmod(as_root, 0o4755)
        os.chown(place, user, user)
    python_path = os.pathsep.join((str(TESTS), str(SOURCE), PACKAGES))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": python_path, "AS_ROOT": str(as_root), "HOME": str(place)}
    who = {} if own else {"user": user, "group": user, "extra_groups": []}
    ran = subprocess.run(
        [program, "-P", "-m", "support.sandboxed_runs", str(place), *builders],
        check=False, env=environment, cwd="/", capture_output=True, text=True, timeout=120, **who,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return {builder: found for builder, (found, _) in json.loads(ran.stdout).items()}


@linux_only
@pytest.mark.parametrize("user", [pytest.param(0, id="root"), pytest.param(NOBODY, id="another-user")])
def test_what_gets_out_without_a_wall_does_not_behind_one(user: int) -> None:
    if os.getuid() not in (0, user):
        user = os.getuid()
    builders = ["landlock", *(["bubblewrap"] if shutil.which("bwrap") else [])]
    # Not in pytest's own folder, which only its owner may enter.
    folder = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    try:
        found = attempts(folder, user, ["none", *builders])
    finally:
        shutil.rmtree(folder)
    tried = {name for name in sandbox_escapes.ATTEMPTS if user == 0 or name not in sandbox_escapes.ROOT_ONLY}
    works = {name for name, escaped in found["none"].items() if escaped}
    assert tried - works <= not_to_be_shown(user), "attempts that do not even work without a wall show nothing"
    for builder in builders:
        assert [name for name, escaped in found[builder].items() if escaped] == [], builder
        assert found[builder].keys() == tried


def not_to_be_shown(user: int) -> set[str]:
    """Attempts that this machine gives no chance, so that nothing is claimed about them here."""
    missing = {
        "fetch_with_curl": "curl",
        "fetch_with_wget": "wget",
        "connect_with_ssh": "ssh",
        "connect_to_a_socket_like_that_of_docker": "curl",
        "make_a_sandbox_in_the_sandbox": "bwrap",
    }
    without = {name for name, program in missing.items() if shutil.which(program) is None}
    # Not every kernel has these calls.
    without |= {"make_calls_by_the_numbers_of_another_processor", "ask_the_kernel_for_its_mounts"}
    without.add("compare_descriptors_with_a_process")
    if os.getuid() != 0:
        without.add("run_a_program_of_another_owner")
    return without
