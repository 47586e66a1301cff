"""Rules for shell commands: what denies is found however a command is spelled, what allows covers nothing else.

Bash itself is the judge: `stress.shell_fuzzer` makes commands, runs them where only harmless programs can be found, and
compares what ran with what the rules say.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from pigeon.agent.interfaces import ArgumentSubject, CommandSubject
from pigeon.permissions.rules import build_layers, ruling_of
from pigeon.system.paths import PathResolver
from pigeon.wire.base import Json
from stress.shell_fuzzer import StubShell, fuzz

PATHS = PathResolver("/work/project", "/home/me")
GIT = {"allow": ["bash(git *)"], "default": "ask"}


def verdict_of(setting: Json, command: str, paths: PathResolver = PATHS) -> str:
    problems: list[str] = []
    rules = build_layers(setting, None, "yolo", problems.append)
    assert problems == []
    return ruling_of(rules, "bash", CommandSubject(command), paths).verdict


# --- what denies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "rm", "true; rm", "env rm", "${HOME:+rm} x", "${HOME+r'm'} x", "A=1 /bin/r? x", "env /bin/r? x",
        "nohup -- /bin/[r]m x", "PROMPT_COMMAND='rm x' bash -i", "PROMPT_COMMAND=rm bash -i", "printf %s rm | sh",
        "A=1 rm x", "A='b c' rm x", "if true; then rm x; fi", "for i in 1; do rm x; done", "for i do rm x; done",
        "! rm x", "{ rm x; }", "time -p rm x", "coproc rm x", "f() { rm x; }", "function f { rm x; }", "env rm x",
        "env -i A=b rm x", "env -u A rm x", "env -S 'rm x'", "env '-Srm x'", "env --split-string='rm x'",
        "command -p rm x", "exec -a ls rm x", "nohup rm x", "nice -n 5 rm x", "builtin command rm x",
        "sudo -u root rm x", "echo x | xargs rm", "xargs -n1 rm x", "timeout -s KILL 5 rm x", "stdbuf -oL rm x",
        "setsid rm x", "busybox rm x", "/bin/rm x", "../../bin/rm x", "sudo /bin/rm x", "r\\m x", "'r'm x", '"rm" x',
        "$'\\x72m' x", "$'\\162m' x", "$'\\u0072m' x", '$"rm" x', "r\\\nm x", "r''m x", "r$@m x", "r${nothing}m x",
        "{rm,-rf,x}", "{r..r}m x", "rm$IFS-rf${IFS}x", "X=rm; $X x", "a=r; b=m; $a$b x", "${X:-rm} x",
        "export X=rm; $X x", "/bin/r? x", "/bin/r[m] x", "/bin/[[:lower:]]m x", "eval 'rm x'", "eval r\\\\m x",
        "eval eval rm x", "bash -c 'rm x'", "bash -lc 'ls; r\\m x'", "sh -c \"bash -c 'rm x'\"", "su -c 'rm x'",
        "ssh host 'rm x'", "find . -exec rm {} +", "find . -name x -execdir /bin/rm {} \\;", "trap 'rm x' EXIT",
        "bash <<< 'rm x'", "bash <<E\nrm x\nE", "echo 'rm x' | sh", "printf 'r\\m x' | sh", "cat <<E\n$(rm x)\nE",
        "alias q='rm x'", "echo $((1 + $(rm x)))", "echo ${x:-$(rm x)}", "echo ${x[$(rm x)]}", "a=($(rm x))",
        "cat <(rm x)", "echo >(rm x)", "echo `r\\m x`", 'echo "`rm x`"', 'echo "`\\"rm\\" x`"',
        "case x in x) rm x;; esac", "case x in (y|x) rm x;; esac", "[[ a < b ]] && rm x",
        ">y rm x", "2>>y rm x", "{fd}>y rm x", "rm<y x",
        "echo $'\\''; rm x", "echo \\'; rm x", "# it's\nrm x", "echo a#'b'; rm x", "test -v 'a[$(rm x)]'",
        "watch -n 1 'rm x'", "flock y -c 'rm x'", "$SHELL -c 'rm x'", "$\\\n(rm x)", "echo ${x:-'}\nrm x\n'",
        "set -- rm x; \"$@\"", "a=(rm x); \"${a[@]}\"", "f() { $X x; }; X=rm; f", "for c in rm; do $c x; done",
        "alias ls=rm", "time -- rm x", "X=$'rm\\tx'; $X", "printf '%s\\n' 'rm x' | bash", "A=rm bash -c '$A x'",
        "hash -p /bin/rm ls; ls x", "awk 'BEGIN{system(\"rm x\")}'", "sh -c 'exec \"$@\"' _ rm x", "[[ x\nrm x",
        "echo 'x\nrm x", "true |& rm x", "true & rm x", "\nrm x", "\trm\tx", "((x)); rm x",
        "eval -- 'a=r; a+=m; $a x'", "ssh -p 3 h 'a=r; a+=m; $a x'", "command export a=r; a+=m; $a x",
        "a=1 declare b=r; b+=m; $b x",
    ],
)  # fmt: skip
def test_a_denied_command_is_found_however_it_is_written(command: str) -> None:
    assert verdict_of({"deny": ["bash(rm *)"]}, command) == "deny"


@pytest.mark.parametrize(
    "command", ["echo rm", "echo rm x", "git rm x", "ls # rm x", "farm x", "echo 'rm x'", "find . -name rm", "rmdir x"]
)
def test_a_word_is_not_taken_for_a_command(command: str) -> None:
    assert verdict_of({"deny": ["bash(rm *)"]}, command) == "allow"


@pytest.mark.parametrize(
    "command",
    ["$(" * 100 + "x" + ")" * 100, "x " * 30_000, "bash -c 'eval x' " * 9000, "a=" + "x" * 4000 + "; " + "$a " * 20],
)
def test_what_is_too_large_to_be_followed_is_taken_to_match(command: str) -> None:
    assert verdict_of({"deny": ["bash(rm *)"]}, command) == "deny"
    assert verdict_of({"allow": ["bash(x *)"], "default": "ask"}, command) == "ask"


# --- what allows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "git log", '"git" log', "gi\\t log", "git log | git diff && git status; git x & git y", "git log 2>&1",
        "git log >/dev/null 2>/dev/null", "git commit -m 'a; rm x > y'", 'git commit -m "a && b"', "git log $X *.py",
        "git log $(git rev-parse HEAD)", "git log \\\n  --oneline", "git log # and so on", "(git log)",
        "{ git log; }", "if git diff --quiet; then git log; else git status; fi", "while git log; do git x; done",
        "! git log", "time git log", "command git log", "env git log", "timeout 5s git log",
        "nice -n 5 nohup git log", "git commit -F - <<'E'\nit's $(x)\nE", "git commit -F - <<< text",
        "git log {a,b}", "git log $((1 + 2))",
    ],
)  # fmt: skip
def test_an_allowance_covers_what_can_be_followed_exactly(command: str) -> None:
    assert verdict_of(GIT, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git log > x", "git log >> x", "git log >| x", "git log &> x", "git log >& x", "git log 2> x",
        "git apply < x", "git log <> x", "> x git log", "> x", "PATH=. git log", "PATH=.; git log",
        "export PATH=.; git log", "for PATH in .; do git log; done", "git log $((PATH=0)); git log",
        "git log ${GIT:=x}", "{PATH}>/dev/null git x", "./git log", "/tmp/git log", "'git ../../evil' log",
        '"git log"', "git\u00a0log", "git\r", "$GIT log", "g?t log", "{git,log}", "git log; rm x", "git log | sh",
        "git log\nrm x", "git log & rm x", "git log $(rm x)", "git log `rm x`", "git log <(rm x)",
        'git log "$(rm x)"', "git log ${x:-$(rm x)}", "git log ${x@P}", "git log ${ rm x; }",
        "git log $[a[$(rm x)]]", "git log $\\\n(rm x)", "git log <<E\n$(rm x)\nE", "git log <<E\nE\\\nF\nE\nrm x",
        "git log <<E\nE\nrm x\nE", "git log $'\\'\nrm x\n: \\''", "env PATH=. git log", "env -i git log",
        "sudo git log", "xargs git log", "eval git log", "bash -c 'git log'", "timeout -s 9 5 git log",
        "git() { git log; }", "function git { git x; }", "coproc git log", "[[ a ]] && git log",
        "case a in a) git x;; esac", "((x)) && git log", "git log 'x", 'git log "x', "git log $(x", "git log (x)",
        "git log @(a|rm x)", "git log\0", "", "#", ";", "alias git=rm", "hash -p /bin/rm git", "trap 'rm x' EXIT",
        ". git", "source git",
    ],
)  # fmt: skip
def test_an_allowance_covers_nothing_that_is_in_doubt_or_does_more(command: str) -> None:
    assert verdict_of(GIT, command) == "ask"


def test_rules_allow_the_pieces_of_a_command_together() -> None:
    allowing = {"allow": ["bash(git *)", "bash(head *)", "bash(> out/*)", "bash(A=* git *)"], "default": "ask"}
    assert verdict_of(allowing, "git log | head -3 > out/x") == "allow"
    assert verdict_of(allowing, "A=1 git log") == "allow"
    for command in ("A=1 rm git x", "A=1 B=2 git log", "A=1", "B=1 git log", "A=1 PATH=. git x", "A=1 ./git log"):
        assert verdict_of(allowing, command) == "ask", command
    for command in ("git log | tail", "git log > y", "git log > out/../y", "git log > out/$X", "git log >> out/x"):
        assert verdict_of(allowing, command) == "ask", command
    assert verdict_of({"allow": ["bash(echo *)", "bash(> *)"], "default": "ask"}, "echo x > $X") == "allow"
    assert verdict_of({"allow": ["bash(echo *)"], "default": "ask"}, 'echo "a; rm x"') == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "x=1 rm git", "x=1 PATH=. git log", "LANG=C PATH=. git log", "LANG=C rm git x", "x=1; rm y",
        "for x in 'a[$(rm y)]'; do git log $((x)); done", "git log 'a[$(rm y)]'; git log $((_))",
        "for x in 'a[$(rm y)]'; do git log ${HOME:x}; done", "for x in 'a[$(rm y)]'; do git log ${HOME:0:x}; done",
        "for x in a 'a[$(rm y)]'; do [ -v \"$x\" ]; done", "for x in a 'a[$(rm y)]'; do test -v $x; done",
        "for x in '-v a[$(rm y)] -o b'; do [ $x = y ]; done", "for x in -v; do [ \"$x\" \"$y\" ]; done", "[ -f * ]",
        "for PATH in .; do git log; done", "read PATH <<< .; git log", "export PATH=.; git log", "export $x; git log",
        "read -r x IFS <<< y", "read 'a[$(rm y)]' <<< x", "read $x <<< y", "export LD_PRELOAD=x; git log",
        "export 'a[$(rm y)]=1'",
    ],
)  # fmt: skip
def test_an_allowance_to_set_a_variable_does_not_allow_what_its_value_could_run(command: str) -> None:
    some = ("git *", "for *", "[ *", "test *", "read *", "export *", "x=*", "LANG=* git *")
    assert verdict_of({"allow": [f"bash({one})" for one in some], "default": "ask"}, command) == "ask"


DECIDING = (
    "GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "HOME", "LESSOPEN", "PAGER",
    "EDITOR", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "LD_PRELOAD", "BASH_ENV", "IFS",
    "PATH", "CDPATH", "http_proxy", "npm_config_script_shell", "XDG_CONFIG_HOME", "MAKEFLAGS", "SSH_ASKPASS", "BROWSER",
    "FOO",
)  # fmt: skip


@pytest.mark.parametrize("name", DECIDING)
def test_a_wildcard_sets_no_variable_that_may_decide_what_runs(name: str) -> None:
    setters = (
        "export",
        "declare",
        "typeset",
        "local",
        "readonly",
        "read",
        "for",
        "unset",
        "wait",
        "mapfile",
        "readarray",
    )
    wide: Json = {"allow": ["bash(git *)", *(f"bash({setter} *)" for setter in setters)], "default": "ask"}
    commands = [f"export {name}=x", f"export x {name}=x", f"declare -x {name}=x", f"readonly {name}=x", f"unset {name}"]
    commands += [f"read -r {name} <<< x", f"for {name} in x; do git log; done", f"local {name}+=x", f"{name}=x git log"]
    commands += [f"read -a{name} <<< x", f"read -ra{name} <<< x", f"wait -np{name}", f"wait -p {name}"]
    commands += [f"mapfile -t {name} <<< x", f"readarray {name} <<< x"]
    assert [command for command in commands if verdict_of(wide, f"{command}; git log") != "ask"] == []
    assert verdict_of({"allow": ["bash(git *)", f"bash(export {name}=*)"]}, f"export {name}=x; git log") == "allow"


@pytest.mark.parametrize("option", ["-i", "-n", "-f", "-A", "-xi", "+x", "--", "'-i'"])
def test_a_wildcard_declares_no_variable_with_options_that_change_what_a_value_means(option: str) -> None:
    assert verdict_of({"allow": ["bash(declare *)"], "default": "ask"}, f"declare {option} x=y") == "ask"
    assert verdict_of({"allow": ["bash(declare *)"], "default": "ask"}, "declare -rx x=y") == "allow"


def test_plain_uses_of_variables_can_be_allowed() -> None:
    some = ("git *", "for *", "[ *", "read *", "wait *", "export *", "x=*", "LANG=* git *", "LANG=* A=* git *")
    some += ("export PATH=*",)
    allowing: Json = {"allow": [f"bash({one})" for one in some], "default": "ask"}
    for command in (
        "x=1; git log $x", "LANG=C git log", "LANG=C A=1 git log", 'for f in *.py; do git log "$f"; done',
        'if [ -f "$x" ]; then git log; fi', '[ "$x" = y ] && git log', "[ $# -eq 0 ]", "[ -n x -a -n y ]",
        "git gc & wait $!",
        "read -r line < /dev/null", "export A=$B && git log", "export PATH=x; git log", "git log ${x:0:3} $((1 + 2))",
    ):  # fmt: skip
        assert verdict_of(allowing, command) == "allow", command


def test_a_program_that_runs_others_is_allowed_by_its_name_only() -> None:
    broad = {"allow": ["bash(* --help)", "bash(*x*)"], "default": "ask"}
    assert verdict_of(broad, "git --help") == "allow"
    for command in ("eval rm --help", "bash -c 'rm x' --help", "A=x git --help", "ls > x", "source x"):
        assert verdict_of(broad, command) == "ask", command
    assert (
        verdict_of({"allow": ["bash(source venv/bin/activate)"], "default": "ask"}, "source venv/bin/activate")
        == "allow"
    )


def test_what_find_and_xargs_run_must_be_allowed_too() -> None:
    allowing = {"allow": ["bash(find *)", "bash(xargs *)", "bash(grep *)", "bash(wc)"], "default": "ask"}
    assert verdict_of(allowing, "find . -name '*.py' -exec grep x {} +") == "allow"
    assert verdict_of(allowing, "find . -name '*.py' | xargs -0 grep x") == "allow"
    for command in ("find . -exec rm {} +", "find . -name x -ok rm {} \\;", "xargs rm", "xargs -I{} grep", "xargs wc"):
        assert verdict_of(allowing, command) == "ask", command
    assert [verdict_of(allowing, command) for command in ("find . $X", "find *", "find . -ex*c rm")] == ["ask"] * 3


# --- files that redirections open ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("echo x > .env", "deny"), ("echo x >> sub/.env", "deny"), ("echo x >& '.env'", "deny"), ("x <> .env", "deny"),
        ("bash -c 'echo x > .env'", "deny"), ("X=.env; echo x > $X", "deny"), ("echo x > .envrc", "allow"),
        ("cat < .env", "allow"), ("cat < secret/key", "ask"), ("cd secret && cat < key", "ask"),
        ("cat < sub/../secret/key", "ask"), ("echo x > secret/key", "allow"), ("echo x > ~/.ssh/id", "deny"),
        ("echo x > $HOME/.ssh/id", "deny"), ("cd ~ && echo x > .ssh/id", "deny"), ("echo x > '~/.ssh/id'", "allow"),
        ("ls >/dev/null 2>/dev/stderr", "allow"), ("cd a;" * 80 + "echo x > y", "deny"),
        ("cd a;" * 80 + "echo x", "allow"), ("cd a;" * 20 + "echo x > y", "allow"),
        ("cat .env > $out", "deny"), ("cat .env > $HOME/x", "allow"), ("x=1; cat .env > $x", "allow"),
        ("cat .env > $(mktemp -d)/x", "deny"), ("echo a b > $out", "allow"),
        (f"echo {' a'.join(map(str, range(3000)))} > $1", "deny"),
        ("echo x > .en[v]", "deny"), ("echo x > .e?v", "deny"), ("echo x > {.env,}", "deny"), ("echo x > '?'", "allow"),
        ("[[ a 2> .env || b", "deny"), ("cd .ss* && echo x > id", "deny"), ("cd {~/.ssh,} && echo x > id", "deny"),
    ],
)  # fmt: skip
def test_rules_for_files_bind_redirections(command: str, verdict: str) -> None:
    rules = {"deny": ["write(.env)", "write(~/.ssh/**)"], "ask": ["read(secret/**)"]}
    assert verdict_of(rules, command) == verdict


GOING = (
    "cd secret; echo > key", "(cd sub); cd secret; echo > key", "cd sub; cd -; cd secret; echo > key",
    'cd sub; cd "$OLDPWD"; cd secret; echo > key', "pushd sub; popd; cd secret; echo > key",
    "A=1 cd secret; echo > key",
    "command cd secret; echo > key", "builtin cd -- secret; echo > key", "eval 'cd secret'; echo > key",
    "f() { echo > key; }; cd secret; f", "for i in 1 2; do echo > key; cd secret; done", "cd secret; echo > $PWD/key",
    "cd secret; echo > ~+/key", "cd sub; echo > $OLDPWD/secret/key", "cd sub; echo > ~-/secret/key",
    "echo > ~+/secret/key", "cd sub; cd; echo > secret/key", "HOME=$PWD/secret; echo > ~/key",
    "HOME=secret; cd; echo > key", "CDPATH=secret; cd deep; echo > ../key", "echo > /proc/self/cwd/secret/key",
    "f() { echo > $1; }; f secret/key", 'f() { echo > "$1/key"; }; f secret', "set -- key; echo > secret/${1}",
    "bash -c 'echo > $0' secret/key", "for f in a secret/key; do echo > $f; done", "read f <<< secret/key; echo > $f",
    "while read f; do echo > $f; done <<< secret/key", "env f=secret/key bash -c 'echo > $f'",
    "printf -v f %s secret/key; echo > $f", "echo > $(echo secret)/key", "echo > `echo secret`/key",
    "OLDPWD=$PWD/secret; cd -; echo > key", "c='cd secret'; $c; echo > key",
    "echo > /proc/$$/cwd/secret/key", "echo > ${HOME:+secret/key}", ": ${x:=secret}; echo > $x/key",
)  # fmt: skip


@pytest.mark.parametrize("command", GOING)
def test_a_rule_binds_redirections_wherever_the_command_has_gone_to(tmp_path: Path, command: str) -> None:
    (tmp_path / "secret" / "deep").mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-c", command], check=False, cwd=tmp_path, env=environment, capture_output=True)
    assert (tmp_path / "secret" / "key").exists()
    paths = PathResolver(str(tmp_path), str(tmp_path))
    assert verdict_of({"deny": ["write(secret/**)"]}, command, paths) == "deny"
    assert verdict_of({"deny": ["write(secrets/**)"]}, command, paths) == "allow"


def test_a_redirection_is_matched_by_where_it_really_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("secret")
    paths = PathResolver(str(tmp_path), "/home/me")
    assert verdict_of({"deny": ["write(secret)"]}, "echo x > link", paths) == "deny"


# --- bash as the judge --------------------------------------------------------------------------------------------


# On a busy machine fewer commands are tried; `make fuzz` has no such limit.
SECONDS_OF_FUZZING = 15.0


@pytest.mark.parametrize("seed", range(4))
def test_what_shells_really_do_is_what_the_rules_judged(tmp_path: Path, seed: int) -> None:
    assert list(fuzz(seed, 120, tmp_path, SECONDS_OF_FUZZING)) == []


# Each was once judged wrongly; the shell really runs `zap v`.
BYPASSES = (
    "read -r x y <<<'zap v'; env $x $y", "`read -r x y <<<'zap v'; env \\$x \\$y`", "history -s zap v; fc -s",
    "<&-zap v", ">&-zap v", "2>& -zap v", "$e zap v", "$a$b zap v", "<()>&a zap v", "\\time -f %e zap v",
    "env -S 'zap\\_v'", "env -vS 'x=1 zap\\_v'",
    'f() { "$@"; }; f zap v', "f() { $1 v; }; f zap", "f() ( env $* ); f zap v",
    "function f { shift; $*; }; f x zap v", "jobs -x zap v", "read x <<<zap; $x v", "printf -v x zap; $x v",
    "for x in ok zap; do $x v; done", "IFS=,; x=zap,v; $x", "a=(ok zap); ${a[1]} v", "z${e:+x}ap v", "z`:`ap v",
    "x=1 alias q=env; shopt -s expand_aliases\nq 'z'ap v", "hash -p $PWD/../bin/env q; q zap v", "${x\\\n-zap} v",
    "declare -i x='a[$(\\zap v)]'", "[[ -v 'a[$(z\"a\"p v)]' ]]", "x='a[$(z\\ap v)]'; : $((x))",
    "x='z\\ap v'; declare -n y=x; eval \"$y\"", "cat <<$x\n$x\nz$'\\x61'p v", "echo zap v | xargs env",
    "case esac in (esac) >o z'a'\\p v;; esac", "printf 'zap\\x20v' | sh", "declare -i x='a[$(${x:-zap} v)]'",
)  # fmt: skip


@pytest.mark.parametrize("command", BYPASSES)
def test_spellings_that_once_escaped_a_rule_are_denied(tmp_path: Path, command: str) -> None:
    assert "zap" in StubShell(tmp_path).run(command).names
    assert verdict_of({"deny": ["bash(zap *)"]}, command) == "deny"


# --- time ---------------------------------------------------------------------------------------------------------

SIZE = 128 * 1024
TEXTS = [
    "rm -rf a ", "rm -r", "a", "a;", "a=b;", "$(", "`", '"', "'", "{a,", "{a,b}", "${a:-", "a=(", "((", "A=1 ",
    "eval ", ">a ", "bash -c 'x y' ", "<<a ", "[a]* ;", "xargs ", "find -exec ", "cd a;", "1", "\\", "\\\n",
    "\u00e9;", "case x in ", "[[ ", "f() ", "echo 'a b' | sh;", "{1..9}", "{a,{a,b}}", "xxxxxxxxxx{a,b}", "<(",
    "$'\\'", '"$("', "rm -rf /1 text\n", "*", "x\\", "cat <<E\n", "a|", "${x}$(a) ",
]  # fmt: skip
MANY = {"deny": [f"bash(*rm*-rf*/{number}*zz)" for number in range(20)] + [f"bash(p{n} *)" for n in range(30)]}


@pytest.mark.parametrize("text", TEXTS)
def test_no_command_takes_long_to_judge(text: str) -> None:
    command = text * (SIZE // len(text))
    began = time.process_time()
    verdict_of(MANY, command)
    verdict_of({"allow": ["bash(a*)"], "default": "ask"}, command)
    assert time.process_time() - began < 1.5  # a tenth of a second where the machine is quiet


def test_no_arguments_of_a_foreign_tool_take_long_to_judge() -> None:
    deep: Json = "x"
    for _ in range(500):
        deep = [deep]
    rules = build_layers({"deny": [f"deploy(*rm*{number}*zz)" for number in range(10)]}, None, "yolo", pytest.fail)
    shapes: list[tuple[Json, str]] = [
        ([["a b", "c"]] * 400, "allow"), (["a b"] * 50_000, "deny"), (list(range(40_000)), "allow"),
        (list(range(90_000)), "deny"), (deep, "allow"),
        ("rm foo\n" * 100_000, "allow"), (["x" * 4000] * 50, "deny"), ({"command": "rm foo\n" * 100_000}, "deny"),
    ]  # fmt: skip
    began = time.process_time()
    for shape, verdict in shapes:
        assert ruling_of(rules, "deploy", ArgumentSubject({"x": shape}), PATHS).verdict == verdict
    assert time.process_time() - began < 5
