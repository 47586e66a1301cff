"""What permission rules know about programs and variables: which programs run others, and which variables are
harmless."""

from __future__ import annotations

import re

# fmt: off
SHELLS = frozenset({"bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "source", "."})
# They make one command of all their words.
JOINING = frozenset({"eval", "ssh", "watch", "parallel"})
# They run what they read.
READING_COMMANDS = SHELLS | {"xargs", "parallel", "at", "batch", "mapfile", "readarray"}
FINDING = frozenset({"find", "fd"})
FINDING_OPTIONS = ("-exec", "-execdir", "-ok", "-okdir")
# Programs that run the command in their arguments, whatever their options are.
RUNNERS = SHELLS | JOINING | READING_COMMANDS | FINDING | {
    "alias", "arch", "bind", "builtin", "busybox", "bwrap", "caffeinate", "catchsegv", "cgexec", "choom", "chroot",
    "chrt", "command", "compgen", "complete", "coproc", "dbus-run-session", "doas", "dumb-init", "enable", "entr",
    "env", "exec", "faketime", "fakeroot", "fc", "firejail", "flock", "function", "gdb", "gosu", "gtimeout", "hash",
    "history",
    "ionice", "jobs", "linux32", "linux64", "ltrace", "nice", "nohup", "nsenter", "numactl", "perf", "pkexec",
    "prlimit", "proot", "proxychains", "rlwrap", "runcon", "runuser", "screen", "script", "setarch", "setpriv",
    "setsid", "sg", "start-stop-daemon", "stdbuf", "strace", "su", "su-exec", "set", "sudo", "systemd-inhibit",
    "systemd-run", "taskset", "time", "timeout", "tini", "tmux", "torsocks", "toybox", "trap", "unbuffer", "unshare",
    "valgrind", "xterm", "xvfb-run",
}
# Programs that run another one unchanged, with the options that do not affect that.
PREFIX_OPTIONS = {
    "command": "-p ", "exec": "(?!)", "nohup": "(?!)", "setsid": "(?!)", "env": "(?!)", "nice": r"-n -?\d+ ",
    "timeout": r"\d+(?:\.\d+)?[smhd]? ", "stdbuf": r"-[ioe][L\d]\w* ",
}
# Builtins whose words are names of variables; those that declare them, with the options that change nothing else.
DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly"})
HARMLESS_DECLARING_OPTIONS = re.compile(r"-[xrgp]+")
SETTING_VARIABLES = DECLARING | {"for", "read", "unset", "getopts", "wait", "mapfile", "readarray"}
# Variables that change no more than the language, the time zone or the looks of an output, and usual names in loops.
# All others may decide what a program runs, so a rule must contain their name.
HARMLESS_VARIABLES = re.compile(
    r"[A-Za-z]\d?|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CI"
    r"|file|files|line|lines|name|dir|item|entry|key|value|word|text|count|index|number|num|id|url|arg|opt|pid|result"
    r"|REPLY|OPTARG|OPTIND"
)
# fmt: on
