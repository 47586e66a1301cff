"""Command lines made from the grammar of bash, run for real, and compared with what permission rules say of them.

They run in an empty folder whose PATH has nothing but programs that note how they were called (`StubShell`). Programs
that run other programs (`env`, `xargs`, `find` ...) are the real ones, or scripts that run their words; since nothing
else can be found through PATH, whatever a generated command does ends in one of the notes. Three promises are held
against these: a program that ran is denied by a rule for it; rules that allowed a command allowed every program that
ran, with the arguments it had; and no file appeared that rules for redirections would have spoken of. `make fuzz
N=100000 SEED=1` tries many; a few are part of the tests.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pigeon.agent.interfaces import CommandSubject
from pigeon.permissions.rules import build_layers, ruling_of
from pigeon.system.paths import PathResolver
from pigeon.wire.base import Json

NOTING = ("zap", "ok", "pre", "cat", "git")
REAL = ("env", "nice", "nohup", "timeout", "stdbuf", "setsid", "xargs", "find", "time", "bash", "sh", "dash", "flock")
PASSING_ON = ("sudo", "doas", "busybox", "ionice", "chroot")
SECONDS = 2
PATHS = PathResolver("/work/project", "/home/me")
NARROW: Json = {"allow": ["bash(ok)", "bash(ok *)", "bash(pre --safe*)"], "default": "ask"}
WIDELY = (
    "ok", "ok *", "pre --safe*", "cat", "cat *", "echo *", ":", ": *", "find *", "xargs *", "> *", ">> *", "<> *",
    "< *", "for *", "[ *", "test *", "read *", "export *", "declare *", "local *", "unset *", "printf *", "x=*",
    "x=* ok *", "wait", "shift*", "shopt *",
)  # fmt: skip
WIDE: Json = {"allow": [f"bash({one})" for one in WIDELY], "default": "ask"}
WIDELY_ALLOWED = frozenset(("ok", "pre", "cat", "find", "xargs"))
# Pieces of commands: %s is another command, in scripts as one quoted word, %r is it as it is, %b is it for backticks.
# fmt: off
BLANKS = [" "] * 12 + ["  ", "\t", " \\\n", "\\\n "]
NOTHING = [
    "$e", "${e}", "$@", "$*", "''", '""', "$''", "${e%x}", "${e:+x}", "$e$nope", "`:`", "$(:)", "${e-}", "\\\n",
    '"$e"', "${@}", "${e[@]}", "${!e*}",
]
EMPTY_WORDS = [
    "$e ", "$e$nope ", "$@ ", "`:` ", "$(:) ", "${e} ", "${e:-} ", "$(: ) $e ", "${e[@]} ", "$* ", "${!nope*} ",
]
REDIRECTIONS = [
    ">o ", "> o ", ">>o ", "2>o ", "2>&1 ", ">&2 ", "<&- ", ">&- ", "2>&- ", "<&-", ">&-", "2>&-", "0<&-", "&>o ",
    "&>>o ", ">|o ", "<>o ", ">&o ", "</dev/null ", ">/dev/null ", "<<<x ", "<<< 'a b' ", "{fd}>o ", "{fd}<&- ",
    "3<&0 ", "3<&0-", "<(:) ", "<()>&a ", ">'o' ", '>"o"', ">o\\\n ", "1>&2-", ">$e", "> $e ", "<&$e", ">&$e ", "2>&1",
    "<&0", ">& - ", "<& -", "<&''", "0<&1-", ">&\\-", ">&-$e", ">&$((1))-", '<&"-"',
]
SCRIPTS = [
    "eval %s", "eval -- %s", "bash -c %s", "sh -c %s", "dash -c %s", "bash -ec %s", "bash +e -c %s", "trap %s EXIT",
    "trap -- %s 0", "bash <<< %s", "sh <<E\n%r\nE", "command eval %s", "builtin eval %s", 'x=%s; bash -c "$x"',
    'x=%s; eval "$x"', "x=%s; eval $x", "env bash -c %s", "nice sh -c %s", "find . -maxdepth 0 -exec sh -c %s \\;",
    "alias q=%s; shopt -s expand_aliases\nq", "shopt -s expand_aliases; alias q=%s\nq",
    "shopt -s expand_aliases\nalias q='ok ' k=%s\nq k", "BASH_ENV=<(echo %s) bash -c :", "PROMPT_COMMAND=%s bash -i",
    "echo %s | bash", "printf %s %s | sh", ". <(echo %s)", "source /dev/stdin <<<%s", "env -S %s", "env -S%s",
    "env -vS %s", "env --split-string=%s", "xargs sh -c %s", "timeout 3 bash -c %s", "flock . -c %s",
    "exec bash -c %s", "x=%s; : ${x@P}", "mapfile -C %s -c 1 <<<x", "PS4='$(%r)'; set -x; :", "enable eval; eval %s",
    'bash -c "$(echo %s)"', "coproc bash -c %s; wait", 'set -- %s; eval "$1"', 'bash -c \'eval "$0"\' %s',
    'bash -c \'eval "$1"\' _ %s', 'x=%s; declare -n y=x; eval "$y"', "complete -C %s x; compgen -C %s x", "bind -x %s",
    'f() { eval "$1"; }; f %s', 'f() { bash -c "$*"; }; f %s', "bash -O extglob -c %s", "bash --norc -c %s",
    "eval '' %s", "eval : \\; %s", 'a=(%s); eval "${a[0]}"', 'export x=%s; bash -c \'eval "$x"\'',
    "trap %s DEBUG; ok", "trap %s ERR; ! ok; false", "exec <<<%s; bash", "( bash ) <<<%s", "f() { sh; }; f <<<%s",
    "echo %s | { ok; sh; }", ". /dev/fd/3 3<<<%s", 'read -r c <<<%s; sh -c "$c"', "PS1='$(%r)' bash -i <<<ok",
    "command_not_found_handle() { %r; }; nosuch", "bash --rcfile <(echo %s) -i <<<ok", 'read -r c <<<%s; trap "$c" 0',
    'export c=%s; find . -maxdepth 0 -exec sh -c \'eval "$c"\' \\;', "coproc sh <<<%s; wait", "builtin . <(echo %s)",
    'x=%s bash -c \'eval "$x"\'', "time bash -c %s", "! eval %s", "{ eval %s; }", "sudo sh -c %s",
    "test -v 'a[$('%s')]'", "let 'a[$('%s')]=1'", "printf -v 'a[$('%s')]' x", "read 'a[$('%s')]' <<<x",
    "unset 'a[$('%s')]'", "declare 'a[$('%s')]=1'", "declare -i x='a[$('%s')]'",
    "x=a; declare -n y=x; y='a[$('%s')]'; : $((x))", "jobs -x sh -c %s", "declare -i x; x='a[$('%s')]'",
    "for x in 'a[$('%s')]'; do : $((x)); done", "declare -i x; for x in 'a[$('%s')]'; do :; done",
    "declare -i x; read x <<<'a[$('%s')]'", "[[ -v 'a[$('%s')]' ]]", "(( a[\\$(%r)] ))", "x='a[$('%s')]'; echo $((x))",
    'x=\'a[$(\'%s\')]\'; [ -v "$x" ]', "x='a[$('%s')]'; [[ $x -eq 0 ]]", "x='a[$('%s')]'; echo ${e:x}",
    "[ 1 -a -v 'a[$('%s')]' ]", "wait -p 'a[$('%s')]'",
]
FRAMES = [
    "%s", "ok; %s", "ok && %s", "! ok || %s", "%s | cat", "ok | %s", "ok |& %s", "( %s )", "(%s)", "{ %s; }",
    "{ %s\n}", "ok $(%s)", "cat <(%s)", 'ok "$(%s)"', "ok `%b`", "if ok; then %s; fi", "if %s; then :; fi",
    "if ! ok; then :; elif %s; then :; else :; fi", "if ! ok; then :; else %s; fi", "for i in 1; do %s; done",
    "for i in 1\ndo\n%s\ndone", "for i in 1;{ %s;}", "for i do %s; done", "set -- 1; for i do %s; done",
    "set -- 1; for i; do %s; done", "until %s; do break; done", "while %s; do break; done",
    "while ok; do %s; break; done", "case x in x) %s;; esac", "case x in (y|x) %s ;; esac",
    "case x in x) ok;& y) %s;; esac", "case x in x) ok;;& *) %s;; esac", "case $(%s) in x) ;; esac",
    "case x in $(%s)) ;; esac", "case x in\nx)\n%s\n;;\nesac", "case esac in (esac) %s;; esac",
    "case x in x) ok ;; esac; %s", "case in in in) %s;; esac", "f() { %s; }; f x", "f () ( %s ); f",
    "function f { %s; }; f", "function f() { %s; }; f", "f()\n{\n%s\n}\nf", "f() if ok; then %s; fi; f",
    "f() { ok; } > $(%s); f", "[[ a < b ]] && %s", "[[ x == x && ! -n $e ]] && %s", "[[ x =~ (x|y) ]]; %s",
    "[[ $(%s) ]]", "[[ x == @(x|y) ]] && %s", "cat <<E\n$(%s)\nE", "cat <<-E\n\t$(%s)\n\tE", "cat <<'E'\n'\nE\n%s",
    "cat <<\\E\n$(\nE\n%s", "cat <<E; %s\n'\nE", "cat <<E && %s\nE", "cat <<E <<F\nE\n$(%s)\nF", "cat <<E\n`%b`\nE",
    "cat <<E\n${x:-$(%s)}\nE", "cat <<''\n\n%s", 'cat <<"E F"\nE F\n%s', "ok $(cat <<E\nE\n%s\n)",
    "ok $(cat <<E\nx'\nE\n); %s", "cat <<E\nE \nE\n%s", "cat <<E\\\nF\nEF\n%s", "cat <<$x\n$x\n%s",
    "cat <<E\n\\\nE\n%s\nE", ": ${x:-$(%s)}", ": ${x=$(%s)}", ": ${x:+y}$(%s)", ': "${x:-"$(%s)"}"', ": ${x/$(%s)/}",
    ": ${#x} # '\n%s", ": ${x#'}'}; %s", ': "${x#\'}\'}"; %s', ": ${x:-\\}}; %s", ": ${x:-'}'}; %s", ': ${x:-"}"}; %s',
    ': "${x:-\'}"; %s #\'}"', "x=$(%s)", "a=($(%s))", "a=(1 2)\n%s", "a=([1]=x); %s", "a[$(%s)]=1", "a[1]=x; %s",
    "declare -a a=($(%s))", "local x=$(%s)", "export x=$(%s)", "declare x=$(%s)", "ok $(( 1 + $(%s; echo 1) ))",
    "(( 1 + $(%s; echo 1) ))", "((1)) && %s", "ok $((1)); %s", "ok $[1+1]; %s", "ok $[$(%s)]", "((%s); ok)",
    "( (ok); %s )", "$((ok); %s)", "ok & %s", "ok&%s", "ok;%s", "ok\n%s", "ok\n\n\t%s", "ok $'\\''; %s",
    "ok $'\\\\'; %s", 'ok $"\'"; %s', "ok \\'; %s", 'ok "\\""; %s', "ok 'a\\'; %s", "ok a#b; %s", "# c '\n%s",
    'ok # c "\n%s', "ok ';#'; %s", "ok;# x\n%s", "ok \\\n; %s", "ok \\# ; %s", "ok $# ; %s", "ok ${#}; %s",
    "coproc { %s; } </dev/null; wait", "coproc n { %s; }; wait", "coproc %s; wait", "coproc if ok; then %s; fi; wait",
    "select i in a; do %s; break; done <<<1", "for ((i=0;i<1;i++)); do %s; done", "for ((i=0;i<1;i++)) { %s; }",
    "ok >(%s)", "ok >$(%s)", "ok <<<$(%s)", "ok {a,$(%s)}", "time { %s; }", "time -p %s", "time %s", "! %s", "! ! %s",
    "time ! %s", "! time %s", "time -- %s", "ok ${x[$(%s)]}", "exec 3>&1; %s", "{ %s; } 2>&1", "{ %s; }>o", "( %s )>o",
    "if ok; then ok; fi>o; %s", "{ ok; } && { %s; }", "{ ok; }\n%s", "x() { ok; }; %s", "unset x; %s",
    "shopt -s extglob\nok @(a|b); %s", "set -- x; %s", "set -e; %s", "ok ! ; %s", "ok }; %s", "ok {; %s",
    "ok then; %s", "ok if; %s", "ok time; %s", "if ok; then { %s; }; fi", "ok <(%s) >(ok)", 'ok "`%b`"',
    'ok "${x:-`%b`}"', "return 2>o || %s", "cd . && %s", "alias ok=ok; %s", "hash -r; %s", "ok ~+; %s",
    "ok [a-z]*; %s", "ok $'a\\x27'; %s", "ok $'a' 'b'; %s", "ok $x'$('; %s", 'ok "$"; %s', "ok $; %s",
    'ok "$\'"; %s #\'', 'ok "a"\'b\'"c\'d"; %s #\'',
]
PREFIXES = [
    "x=1 ", "x='a b' y=2 ", "x+=1 ", "x=$e ", "x= ", "a[0]=1 ", "x=$(ok) ", 'x="$y" ', "env ", "env -i PATH=$PATH ",
    "env -u X ", "env x=1 ", "env -- ", "env - PATH=$PATH ", "command ", "command -p ", "command -- ", "exec ",
    "exec -a foo ", "exec -c ", "exec -la foo ", "time ", "time -p ", "\\time -f %e ", "\\time ", "'time' -p ",
    "command time -p ", "nohup ", "nice ", "nice -n 3 ", "nice -3 ", "timeout 3 ", "timeout -s KILL 3 ",
    "timeout --signal=KILL 3 ", "stdbuf -oL ", "setsid -w ", "! ", "xargs ", "xargs -n 1 ", "xargs -I@ ",
    "builtin command ", "builtin eval ", "eval ", "eval -- ", "sudo ", "sudo -n ", "doas ", "busybox ", "ionice -c3 ",
    "env nice timeout 3 ", "\\env ", "'nohup' ", "n\\ice ", "e''nv ", "coproc ", "flock . ", "chroot ",
    "find . -maxdepth 0 -exec ", "find . -maxdepth 0 -ok ", "command env ", "exec env ", "env -S ", "env -S 'x=1' ",
    "env -vS ", "command command ", "env env ", "command exec ", "command builtin command ", "exec nice ",
    "x=1 env y=2 ", ">o env ", "env >o ", "command 2>&1 ", "env <&-", "time time ", "$e", "env $e", "command $e ",
    "$x env ", "env ${e}", "nice $e -n 3 ", 'sh -c \'"$@"\' _ ', 'bash -c \'$0 "$@"\' ', 'bash -c \'exec "$@"\' _ ',
    "sh -c '$*' _ ", 'f() { "$@"; }; f ', "f() { $1 v; }; f ", 'f() { env "$@"; }; f ', 'f() { shift; "$@"; }; f x ',
    "function f { $*; }; f ", "set -- ", "shopt -s expand_aliases; alias q='ok ; '\nq ",
    "alias q=env; shopt -s expand_aliases\nq ", "hash -p env q; q ", "builtin command -- ", "builtin -- command ",
    "exec 2>&1 ", "exec {fd}>o ", "exec <&-", "xargs -0 ", "xargs env ", "x=env; $x ", "x='env -i PATH='$PATH; $x ",
    "${e:-env} ", "$'env' ", "env PATH=$PATH ", "PATH=$PATH ", "e= ", 'f() { ok; "$@"; ok; }; f ', "f() ( $1 $2 ); f ",
    'a=(env); "${a[@]}" ', "a=(env); ${a} ", 'r() { [ $# -gt 1 ] || "$@"; }; r ', "enable -n time; time ", "jobs -x ",
    "x=1 y=2; ", "f() { ok; }; unset -f f; ", "shift; ", "f=env; $f ",
]
INDIRECT = [
    'a=(zap v); "${a[@]}"', "a=(zap v)\n${a[*]}", 'set -- zap v; "$@"', "set -- zap v; $*", "set -- zap v; $1 $2",
    "x='zap v'; $x", "for x in 'zap v'; do $x; done", "for x in zap; do $x v; done", "x=zap; $x v",
    "x=zap; y=v; $x $y", "a=z; b=ap; $a$b v", "x=zap; ${x} v", 'x=zap; "$x" v', "x=z; x+=ap; $x v",
    "declare x=zap; $x v", "read x <<<zap; $x v", "read -r x y <<<'zap v'; $x $y", "printf -v x zap; $x v",
    ": ${x:=zap}; $x v", "${x:-zap} v", "${x-zap} v", "${PATH:+zap} v", "${PATH+zap} v", '"${x:-zap}" v', "{zap,v}",
    "{,zap} v", "z{a,}p v", "{zap,} v", "za{p..p} v", "x=zap; y=$x; $y v", "x=zap f() { :; }; x=zap; $x v",
    "mapfile -t x <<<zap; $x v", "x=zap eval '$x v'", "export x=zap; sh -c '$x v'", "env x=zap sh -c '$x v'",
    "local x=zap; zap v", "x=(zap v); ${x[@]}", "x=zap; ${x%q} v", "x=zap; ${x,,} v", "x=zap; ${!y} v; zap v",
    "f() { local x=zap; $x v; }; f", "f() { $x v; }; x=zap; f", "x=zap; (($x v)); $x v",
    "select x in zap; do $x v; break; done <<<1", "case zap in *) zap v;; esac", "x=zap:; IFS=:; $x v",
    "read -r x y <<<'zap v'; env $x $y", "IFS= read -r a <<<'zap'; command \"$a\" v", 'a=zap; nohup "$a" v',
    "read -a x <<<'zap v'; env \"${x[@]}\"", "mapfile -t x <<<'zap'; env $x v", "echo zap | { read x; nice $x v; }",
    "while read l; do env $l; done <<<'zap v'", 'select c in zap; do env "$c" v; break; done <<<1', "zap$IFS'v'",
    "zap${IFS}v", "IFS=/; a=zap/v; $a", "x=-exec; find . -maxdepth 0 $x zap v \\;", "printf 'zap v' | xargs",
    "shopt -s lastpipe; echo zap | read x; $x v", "${PATH%%:*}/zap v", "~+/../bin/zap v", "history -s zap v; fc -s",
    "f() { zap v; }; export -f f; bash -c f", "declare -l x=ZAP; $x", 'a=(nice -n 3 zap v); "${a[@]}"',
    'a=(-exec zap v \\;); find . -maxdepth 0 "${a[@]}"', "printf 'zap\\0v' | xargs -0", 'm=(zap); env "${m[@]}" v',
    "IFS=,; x=zap,v; $x", "x=$'zap\\tv'; $x", 'x="zap v"; $x', "x='zap v' y=1; $x",
]
SIGNS = [
    "zap v", "'", '"', "\\", "$(", ")", "`", ";", "\n", "<<E", "\nE\n", "<<-'E'", "#", "{ ", "}", "case a in ", "a)",
    ";;", " esac", " ", "&&", "||", "|", "&", "$'", "${x:-", "${x", "((", "))", "$((", "[[ ", " ]]", "ok ", "ok a ",
    "if ", "then ", "fi", "f()", " < ", " > ", "/dev/null", "$x", "*", "a", "\\\n", "(", "<(", "<<<", "!", "E",
    '<<"E"', "\t", "time ", "for i in a; do ", "done", "while ", "do ", " 2>&1 ", "=", "[", "]", "@(", "$", "$[", "${",
    "''", "\\'", '\\"', '$"', "\r", "-", "~", "{a,b}", "a=(", "+", "coproc ", "function f ", "in ", ">&-", "<&-", "&>",
    "2", "x=", "$e", "env ", "command ",
]
ARGUMENTS = [
    "v", "'v'", "-f v", "$e v", "v $x", "--safe", 'v \'a b\' "c;d"', "v *.txt", "v {1,2}",
]
HARMLESS = [
    "ok a", "ok 'zap v'", 'ok "zap v"', "ok zap v", "ok # zap v", "pre --safe zap", "x='zap v'", "ok <<<'zap v'",
    "for x in zap v; do ok $x; done", "export x='zap v'", "declare x='zap v'", "read x <<<'zap v'", "[ -f zap ]",
    "ok <<E\nzap v\nE", "ok <<'E'\n$(zap v)\nE", "ok <<-E\n\tzap v\n\tE", "find . -name zap -exec ok {} +",
    "xargs ok zap", "ok \\$(zap v)", "ok '$(zap v)'", "ok '`zap v`'", "ok $'zap v'", "ok ${x:-zap v}", "x=zap ok $x",
    'ok "a\\"; zap v"', "ok a\\;zap v", "ok $((1 + 2))", "if ok zap; then ok zap v; fi", "{ ok zap v; }",
    '[ "$x" = zap ] && ok zap', "ok zap v 2>&1", "ok zap > /dev/null", "test -n zap", ": zap v", "printf zap v",
    "echo zap v | ok", "unset zap", "command ok zap v", "env ok zap v", "timeout 3 ok zap", "cat <<E | ok\nzap v\nE",
]




class ShellRun(Struct, frozen=True):
    """What a command really did: the programs that ran, each with its arguments, and the files that it left."""

    programs: tuple[tuple[str, ...], ...]
    files: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(program[0] for program in self.programs)


class StubShell:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes = folder / "notes"
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._scripts: dict[Path, str] = {}
        for name in NOTING:
            self._add_script(name, "[ -t 0 ] || while read -r _; do :; done" if name == "cat" else ":")
        for name in PASSING_ON:
            self._add_script(name, 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"')
        for name in REAL:
            found = shutil.which(name, path="/usr/bin:/bin")
            if found is not None:
                (self._bin / name).symlink_to(found)

    def _add_script(self, name: str, rest: str) -> None:
        script = self._bin / name
        self._scripts[script] = f"#!/bin/sh\nprintf '%s\\1' {name} \"$@\" '\2' >> {self._notes}\n{rest}\n"
        script.write_text(self._scripts[script])
        script.chmod(0o755)

    def run(self, command: str, shell: str = "bash") -> ShellRun:
        work = self._folder / "work"
        work.mkdir()
        self._notes.unlink(missing_ok=True)
        for script, text in self._scripts.items():
            if script.stat().st_size != len(text):  # a redirection has overwritten it
                script.write_text(text)
        environment = {"PATH": str(self._bin), "HOME": str(work), "FUNCNEST": "6"}
        process = subprocess.Popen(
            [f"/bin/{shell}", "-c", command],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        notes = self._notes.read_text(errors="replace") if self._notes.exists() else ""
        programs = tuple(tuple(note.split("\1")[:-1]) for note in notes.split("\2\1") if note)
        files = frozenset(str(path.relative_to(work)) for path in work.rglob("*"))
        shutil.rmtree(work)
        return ShellRun(programs, files)


# fmt: on


class CommandMaker:
    """Makes commands that contain `zap`: most of them hide that they run it, some only look as if they did."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def make(self) -> str:
        chance = self._random.random()
        if chance < 0.2:
            return self._make_jumble()
        if chance < 0.4:
            return self._mutate(self._nest(self._pick(HARMLESS), (0, 0, 0, 1)))
        simple = self._pick(INDIRECT) if chance < 0.5 else self._make_simple()
        command = self._nest(simple, (0, 1, 1, 2, 3))
        return self._mutate(command) if self._happens(0.15) else command

    def _pick(self, some: Sequence[str]) -> str:
        return self._random.choice(some)

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _maybe(self, share: float, some: Sequence[str]) -> str:
        return self._pick(some) if self._happens(share) else ""

    def _make_simple(self) -> str:
        """`zap` with an argument, behind prefixes, and with redirections anywhere."""
        program = self._spell(self._pick(["zap", "zap", "zap", "../bin/zap"]))
        made = self._maybe(0.25, EMPTY_WORDS) + self._maybe(0.25, REDIRECTIONS) + program
        made += f"{self._pick(BLANKS)}{self._pick(ARGUMENTS)} {self._maybe(0.2, REDIRECTIONS)}"
        while self._happens(0.4):
            made = self._pick(PREFIXES) + self._maybe(0.1, REDIRECTIONS) + made
        return self._maybe(0.1, EMPTY_WORDS) + self._maybe(0.15, REDIRECTIONS) + made

    def _spell(self, name: str) -> str:
        if self._happens(0.5):
            return name
        forms = ["%s", "%s", "%s", "\\%s", "'%s'", '"%s"', "$'%s'", '$"%s"', "$'\\x%x'", "$'\\%o'", "$'\\u00%x'"]
        made = ""
        for sign in name:
            form = self._pick(forms)
            made += form % (ord(sign) if form[-2:-1] in ("x", "o") else sign) + self._maybe(0.15, NOTHING)
        return made

    def _nest(self, command: str, depths: Sequence[int]) -> str:
        for _ in range(self._random.choice(depths)):
            if self._happens(0.75):
                escaped = command.replace("\\", "\\\\").replace("`", "\\`").replace("$", "\\$")
                command = self._pick(FRAMES).replace("%s", command).replace("%b", escaped)
            else:
                command = self._pick(SCRIPTS).replace("%s", shlex.quote(command)).replace("%r", command)
        return command

    def _make_jumble(self) -> str:
        signs = [self._pick(SIGNS) for _ in range(self._random.randint(1, 12))]
        signs.insert(self._random.randint(0, len(signs)), "zap v")
        return "ok " + "".join(signs)

    def _mutate(self, command: str) -> str:
        for _ in range(self._random.randint(1, 3)):
            at = self._random.randint(0, len(command))
            end = at + self._random.choice((0, 0, 1))
            command = command[:at] + self._maybe(0.7, SIGNS) + command[end:]
        return command


def verdict_on(command: str, setting: Json) -> str:
    """What the rules of a setting say of a command."""
    problems: list[str] = []
    rules = build_layers(setting, None, "yolo", problems.append)
    assert not problems, problems
    return ruling_of(rules, "bash", CommandSubject(command), PATHS).verdict


def find_mistakes(command: str, run: ShellRun) -> Iterator[str]:
    """What is wrong with the verdicts on a command that did this."""
    for name in sorted(run.names):
        if verdict_on(command, {"deny": [f"bash({name} *)"]}) != "deny":
            yield f"{name} ran and was not denied"
    if ("zap", "v") in run.programs and verdict_on(command, {"deny": ["bash(zap v*)"]}) != "deny":
        yield "zap v ran and was not denied"
    if "o" in run.files and verdict_on(command, {"deny": ["write(o)"]}) != "deny":
        yield "a file was written that a rule denies"
    unsafe = any(program[0] == "pre" and not "".join(program[1:2]).startswith("--safe") for program in run.programs)
    if (run.files or unsafe or run.names - {"ok", "pre"}) and verdict_on(command, NARROW) == "allow":
        yield f"the narrow rules allowed {run}"
    if run.names - WIDELY_ALLOWED and verdict_on(command, WIDE) == "allow":
        yield f"the wide rules allowed {run}"


def fuzz(seed: int, count: int, folder: Path, seconds: float = math.inf) -> Iterator[tuple[str, str]]:
    """Yields the commands from a seed that are judged wrongly, each with the reason; ends early after so many
    seconds."""
    shell, maker = StubShell(folder), CommandMaker(seed)
    until = time.monotonic() + seconds
    for _ in range(count):
        if time.monotonic() > until:
            return
        command = maker.make()
        for name in ("bash", "dash"):
            for mistake in find_mistakes(command, shell.run(command, name)):
                yield command, f"{name}: {mistake}"


def main(arguments: list[str]) -> int:
    """`python -m stress.shell_fuzzer N SEED`: N commands from a seed."""
    count, seed = int(arguments[0]), int(arguments[1])
    began, mistakes = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        for command, mistake in fuzz(seed, count, Path(folder)):
            mistakes += 1
            print(f"{mistake}\n    {command!r}", flush=True)  # noqa: T201
    print(f"{count} commands, {mistakes} mistakes, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
