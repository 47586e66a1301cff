"""Words of shell commands are read as bash reads them: random spellings, put to both."""

from __future__ import annotations

import random
import shlex
import subprocess

import pytest

from pigeon.permissions.shell_syntax import read_script
from pigeon.permissions.shell_words import ShellWord

# Spellings of pieces of words; none of them runs anything or expands to something that depends on the machine.
PLAIN = ["a", "B1", "--y=z", "/p/q", "%", "@", ":", ",", "é", "#", "=", "{", "}", "!"]
ESCAPED = ["\\a", "\\ ", "\\\\", "\\'", '\\"', "\\$", "\\`", "\\;", "\\|", "\\#", "\\\n", "\\*"]
SINGLE = ["''", "'a b'", "'\\'", "'$X'", "'\"'", "'a\nb'", "'`'", "'#'"]
DOUBLE = [
    '""', '"a b"', '"\\a"', '"\\\\"', '"\\""', '"\\$X"', '"\\`"', '"\\\n"', '"\'"', '"a\nb"', '"$"', '"\\n\\t"', '"*"',
    '"$X"', '"${X}"', '"a${X}b$Y"',
]  # fmt: skip
ANSI = [
    "$'a'", "$'\\n'", "$'\\t\\\\'", "$'\\''", "$'\\x41'", "$'\\x4g'", "$'\\101'", "$'\\1'", "$'\\u00e9'", "$'\\u41z'",
    "$'\\U0001F600'", "$'\\e'", "$'\\cA'", "$'\\\"'", "$'\\?'", "$'\\q'", "$'a b'", '$"a b"',
]  # fmt: skip
VARIABLES = ["$X", "${X}", "$Y", "${Y}"]
PIECES = [PLAIN, PLAIN, PLAIN, ESCAPED, SINGLE, DOUBLE, ANSI, VARIABLES]
END = "end-of-words"
SET = "X=one; Y='t w'; "
SHOW = "show() { [ $# = 0 ] || printf '%s\\0' \"$@\"; }; "


def make_word(chance: random.Random) -> str:
    return "".join(chance.choice(chance.choice(PIECES)) for _ in range(chance.randint(1, 4)))


def words_in_bash(commands: list[str]) -> list[list[str]]:
    """The arguments that each command gets."""
    lines = (f"eval {shlex.quote(f'show {command}')}; show {END}\n" for command in commands)
    done = subprocess.run(
        ["bash", "--norc", "--noprofile"],
        input=(SET + SHOW + "".join(lines)).encode(),
        capture_output=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        cwd="/",
    )
    parts = done.stdout.decode().split(f"{END}\0")[:-1]
    assert len(parts) == len(commands), done.stderr.decode()
    return [part.split("\0")[:-1] for part in parts]


def words_as_read(command: str) -> tuple[list[ShellWord], bool]:
    script = read_script(f"{SET}show {command}", {})
    return script.commands[-1][1:], script.doubt


@pytest.mark.parametrize("seed", range(4))
def test_words_have_the_values_that_bash_gives_them(seed: int) -> None:
    chance = random.Random(seed)
    commands = [" ".join(make_word(chance) for _ in range(chance.randint(1, 3))) for _ in range(400)]
    exact = 0
    for command, expected in zip(commands, words_in_bash(commands), strict=True):
        words, in_doubt = words_as_read(command)
        if not in_doubt and all(word.is_exact for word in words):
            exact += 1
            assert [word.value for word in words] == expected, command
    assert exact > 100, "much of what can be written is read exactly"
