"""The scripts for machines without Python. They need a POSIX shell, and `find`, `stat -c`, `dd`, `mv`, `chmod` as
busybox and GNU have them."""

from __future__ import annotations

from pigeon.workspaces.remote.shell_connection import quote

# What `stat` prints of a file: kind and mode, size, times, inode, links, device.
FORMAT = "%f|%s|%Y|%y|%z|%i|%h|%d"

# p_real PATH: the real path, links followed as far as they exist, in R. A `x` keeps line ends at the end of names.
REAL = """
p_real() {
f=$1; t=; i=0
while :; do
  if [ -L "$f" ] && [ $i -lt 40 ]; then
    i=$((i+1)); l=$(readlink "$f"; echo x); l=${l%?x}
    case $l in /*) f=$l;; *) f=${f%/*}/$l;; esac
    continue
  fi
  if [ -d "$f/" ]; then R=$(cd -P -- "$f/" 2>/dev/null && pwd -P && echo x) && { R=${R%?x}; break; }; fi
  case $f in */*) ;; *) R=/$f; break;; esac
  n=${f##*/}; f=${f%/*}
  case $n in ''|.) ;; ..) f=${f%/*};; *) t=/$n$t;; esac
  [ "$f" ] || { R=; break; }
done
[ "$R" = / ] && [ "$t" ] && R=
R=$R$t
[ "$R" ] || R=/
}
"""

# p_held PLACE: fails if a link is on the way by now.
HELD = (
    REAL
    + """
p_held() { p_real "$1"; [ "$R" = "$1" ] && [ ! -L "$1" ] || { printf ELOOP; exit 9; }; }
"""
)

# p_why PATH: the name of the error that explains why a path cannot be used.
WHY = """
p_why() {
d=$1
while d=${d%/*}; [ "$d" ]; do
  if [ -e "$d" ]; then [ -d "$d" ] || { printf ENOTDIR; exit 9; }; [ -x "$d" ] || { printf EACCES; exit 9; }; break; fi
done
if [ -e "$1" ]; then printf EACCES; else printf ENOENT; fi
exit 9
}
"""

# p_kill PID: kills a process and everything below it or in its session; all are known before the first is killed, since
# the children of a dead one have another parent, and stopped, since one whose child dies would go on. The first one is
# killed last, because its end is waited for.
KILL = """
p_find() {
m=x; g=
while [ "$m" ]; do
  m=
  for s in /proc/[0-9]*/stat; do
    read -r a 2>/dev/null <"$s" || continue
    q=${a%% *}; set -- ${a##*) }
    case $l in *" $q "*) continue;; esac
    case $l in *" $2 "*|*" $4 "*) l=" $q$l"; m=x; g=x;; esac
  done
done
}
p_kill() {
l=" $1 "; g=x
while [ "$g" ]; do p_find; kill -STOP $l; kill -9 $l; done 2>/dev/null
}
"""

ABOUT_MACHINE = """
printf '%s\\n' "${HOME:-/}"
if [ -x /bin/bash ]; then echo /bin/bash; else command -v sh || echo /bin/sh; fi
stat -c '%f' / >/dev/null 2>&1 && find / -prune -exec stat -c %f {} + >/dev/null 2>&1 || echo "no stat or find"
"""


def look_script(path: str, mark: str, content: int, entries: bool, held: bool) -> str:
    """Print what there is at a path: the lines of `stat` for itself and what it leads to, its real place, its target,
    and what was asked for; each ends with the mark."""
    script = [
        f"o={quote(path)}",
        f'p_real "$o"; printf \'%s{mark};\' "$R"',
        f'[ -L "$o" ] && readlink "$o"; printf \'{mark};\'',
        f"stat -c '{FORMAT}' -- \"$o\" 2>/dev/null; printf '{mark};'",
        f"stat -L -c '{FORMAT}' -- \"$o\" 2>/dev/null; printf '{mark};'",
    ]
    if held:
        script.insert(2, f'[ "$R" = "$o" ] && [ ! -L "$o" ] || o=/dev/null/{mark}')
    if content:
        script.append(f'[ -f "$o" ] && head -c {content} <"$o" 2>/dev/null || printf \'{mark}!\'')
    script.append(f"printf '{mark};'")
    if entries:
        script.append(f'[ -d "$o/" ] && cd -- "$o/" 2>/dev/null && {{ {list_entries(mark)}; }} || printf \'{mark}!\'')
    script.append(f"printf '{mark};'")
    return "(" + "\n".join(script) + "\n)\n"


def list_entries(mark: str) -> str:
    """Print what is in the working folder: itself, then with `+` what links lead to, then with `>` their
    targets; each ends with a slash, which no name has, and the mark with a `:`."""
    links = "find . -maxdepth 1 ! -name . -type l"
    target = f'for f do printf ">%s" "$f"; printf "/{mark}:"; readlink "$f"; printf "/{mark}:"; done'
    return (
        f"find . -maxdepth 1 ! -name . -exec stat -c '{FORMAT}|%n/{mark}:' {{}} +\n"
        f"{links} -exec stat -L -c '+{FORMAT}|%n/{mark}:' {{}} + 2>/dev/null\n"
        f"{links} -exec sh -c '{target}' sh {{}} + 2>/dev/null; true"
    )


def read_script(path: str, start: int, size: int | None, held: bool) -> str:
    q = quote(path)
    check = f"p_held {q}\n" if held else ""
    part = f"cat <{q}" if start == 0 and size is None else f"tail -c +{start + 1} <{q}"
    if size is not None:
        part = f"head -c {size} <{q}" if start == 0 else f"{part} | head -c {size}"
    return (
        f"{HELD}{WHY}{check}[ -d {q} ] && {{ printf EISDIR; exit 9; }}\n"
        f"[ -e {q} ] && [ ! -f {q} ] && {{ printf special; exit 9; }}\n[ -f {q} ] && [ -r {q} ] || p_why {q}\n{part}"
    )


def write_script(path: str, unchanged: str | None, held: bool, temporary: str) -> str:
    """Write `p_data` to a new file beside the old one and move it there; a file with several names is overwritten."""
    q = quote(path)
    check = f"p_held {q}\n" if held else f"p_real {q}\n"
    condition = ""
    if unchanged is not None:
        condition = (
            f"v=$(stat -c '{FORMAT}' -- \"$R\" 2>/dev/null || echo missing)\n"
            f'[ "$v" = {quote(unchanged)} ] || {{ printf changed; exit 9; }}\n'
        )
    return f"""{HELD}{WHY}{check}[ -d "$R" ] && {{ printf EISDIR; exit 9; }}
[ -e "$R" ] && [ ! -f "$R" ] && {{ printf special; exit 9; }}
d=${{R%/*}}; mkdir -p -- "$d/" 2>/dev/null || p_why "$d/x"
{condition}t="$d/{temporary}"
p_fail() {{
case $1 in
*[Nn]o\\ space*) printf ENOSPC;; *[Rr]ead-only*) printf EROFS;; *ermission*) printf EACCES;; *) printf EIO;;
esac
exit 9
}}
if [ -e "$R" ] && {{ [ "$(stat -c %h -- "$R")" -gt 1 ] || [ ! -w "$R" ] || [ ! -w "$d" ]; }}; then
  e=$( {{ p_data >"$R"; }} 2>&1) || p_fail "$e"
else
  trap 'rm -f -- "$t"' EXIT
  e=$( {{ p_data >"$t"; }} 2>&1) || p_fail "$e"
  if [ -e "$R" ]; then
    chmod "$(stat -c %a -- "$R")" -- "$t" && chown "$(stat -c %u:%g -- "$R")" "$t" 2>/dev/null
  fi
  e=$(mv -f -- "$t" "$R" 2>&1) || p_fail "$e"
fi
"""


def run_script(command: str, cwd: str, shell: str, mark: str, with_input: bool) -> str:
    """Run a command in a session of its own, as long as lines come on the input; then kill what is left of it."""
    source = "p_data | " if with_input else ""
    return f"""{KILL}
cd -- {quote(cwd)} 2>/dev/null || {{ printf '\\n{mark} folder\\n'; exit; }}
exec 3<&0
export PI_CODING_AGENT=true AI_AGENT=pigeon
s=; command -v setsid >/dev/null 2>&1 && s=setsid
{source}$s {quote(shell)} -c {quote(command)} {"" if with_input else "</dev/null"} 2>&1 3<&- &
p=$!
( n=0; trap 'n=0' USR1; while [ $n -lt 9 ]; do sleep 1; n=$((n+1)); done; p_kill $p ) >/dev/null 2>&1 3<&- &
w=$!
( while read -r x && [ "$x" != k ]; do kill -USR1 $w; done; kill -9 $w; p_kill $p ) <&3 >/dev/null 2>&1 &
r=$!
wait $p
c=$?
kill -9 $w $r 2>/dev/null
p_kill $p
printf '\\n{mark} %s\\n' $c
exit
"""
