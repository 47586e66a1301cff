"""`pigeon completions`: scripts by which shells complete commands, actions and options, made from their tables."""

from __future__ import annotations

from collections.abc import Sequence

from pigeon.cli.args import WORDS, list_option_rows
from pigeon.cli.commands.all import COMMANDS
from pigeon.frontends.call import CommandCall, CommandDeclaration, Row
from pigeon.frontends.printing import print_line
from pigeon.transport import exit_codes
from pigeon.wire.errors import UsageError

# Signs in a metavar that say that a file or folder is meant.
FILES = ("FILE", "DIR", "PATH")

# readline replaces "$2", because @ separates words. It would also quote the @, so the names are quoted here.
BASH_MENTIONS = r"""
  case "$2" in @*)
    while IFS= read -r words; do
      if [ -d "$words" ]; then words="$words/"; compopt -o nospace 2>/dev/null; fi
      case "$current" in [$'\x22\x27']*) ;; *) printf -v words %q "$words" ;; esac
      COMPREPLY+=("@$words")
    done < <(options="${2#@}"; compgen -f -- "${options//\\/}")
    return ;;
  esac""".strip("\n").split("\n")


def run_completions(call: CommandCall) -> int:
    """Print the script of a shell; raises `UsageError` for an unknown shell."""
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    if call.words[0] not in scripts:
        raise UsageError(f"There are completions for {', '.join(scripts)}, and not for {call.words[0]}")
    print_line(scripts[call.words[0]]())
    return exit_codes.OK


def _visible_rows(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row[2]]


def _completion_words_of(command: CommandDeclaration) -> list[tuple[str, str]]:
    """The words that may follow the name of a command directly, with descriptions."""
    if command.name == "help":
        return [(one.name, one.summary) for one in COMMANDS.values()]
    choices = [(word, "") for action in command.actions for one in action.arguments[:1] for word in one.split("|")[:9]]
    named = [(action.name, action.summary) for action in command.actions if action.name]
    return named or [(word, text) for word, text in choices if word.islower()]


# Files that belong to the prompt have a character before their name.
FISH_MENTIONED = "string match -q '@*' -- (commandline -ct)"
FISH_MENTIONS = "(__fish_complete_path (string sub -s 2 -- (commandline -ct)) | string replace -r '^' '@')"


def bash_script() -> str:
    """The script for bash 3.2, which macOS has, and newer."""
    cases = []
    for command in COMMANDS.values():
        names = " ".join(
            name for row in _visible_rows(command.rows) for name in row[0].split() if name.startswith("--")
        )
        words = " ".join(word for word, _ in _completion_words_of(command))
        cases.append(f'    {command.name}) options="{names}"; words="{words}" ;;')
    options = " ".join(
        name for row in _visible_rows(list_option_rows()) for name in row[0].split() if name.startswith("--")
    )
    values = [
        f'    {option}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$current")); return ;;'
        for option, words in WORDS.items()
    ]
    files = "|".join(sorted(name for row in list_option_rows() if _has_file_value(row) for name in row[0].split()))
    return "\n".join(
        [
            "# bash completion of pigeon; made by `pigeon completions bash`",
            "_pigeon() {",
            "  local current previous command options words IFS=$' \\t\\n'",
            "  COMPREPLY=()",
            '  current="${COMP_WORDS[COMP_CWORD]}"',
            '  previous="${COMP_WORDS[COMP_CWORD-1]}"',
            # A character that separates words is itself a word: --mode=json are three.
            '  if [ "$current" = "=" ]; then current=""',
            '  elif [ "$previous" = "=" ] && [ "$COMP_CWORD" -gt 2 ]; then previous="${COMP_WORDS[COMP_CWORD-2]}"; fi',
            '  command=""',
            *BASH_MENTIONS,
            '  if [ "$COMP_CWORD" -gt 1 ]; then command="${COMP_WORDS[1]}"; fi',
            '  case "$previous" in',
            *values,
            f"    {files}) return ;;",
            "  esac",
            '  case "$command" in',
            *cases,
            f'    *) options="{options}"; words="" ;;',
            "  esac",
            f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(COMMANDS)}"; fi',
            '  if [ "$COMP_CWORD" -gt 2 ] && [ -n "$words" ]; then words=""; fi',
            '  case "$current" in',
            '    -*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;',
            '    *) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;',
            "  esac",
            "}",
            # Without a reply, readline completes the name of a file, and quotes it.
            "complete -o default -F _pigeon pigeon",
        ]
    )


def zsh_script() -> str:
    """The script for zsh with its completion system."""
    cases = []
    for command in COMMANDS.values():
        actions = " ".join(_format_zsh_pair(word, text) for word, text in _completion_words_of(command))
        specs = " ".join(spec for row in _visible_rows(command.rows) for spec in _format_zsh_specs(row))
        cases += [f"    {command.name})", f"      actions=({actions})", f"      options=({specs}) ;;"]
    options = [f"        {spec}" for row in _visible_rows(list_option_rows()) for spec in _format_zsh_specs(row)]
    return "\n".join(
        [
            "#compdef pigeon",
            "# zsh completion of pigeon; made by `pigeon completions zsh`",
            # A file that belongs to the prompt has a character before its name.
            "_pigeon_files() { compset -P '@'; _files }",
            "_pigeon() {",
            "  local -a commands actions options",
            "  commands=(",
            *(f"    {_format_zsh_pair(one.name, one.summary)}" for one in COMMANDS.values()),
            "  )",
            "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then",
            "    _describe -t commands 'command' commands",
            "    return",
            "  fi",
            "  case $words[2] in",
            *cases,
            "    *)",
            "      options=(",
            *options,
            "      ) ;;",
            "  esac",
            "  if (( CURRENT == 3 && $#actions )) && [[ $words[3] != -* ]]; then",
            "    _describe -t actions 'action' actions",
            "    return",
            "  fi",
            "  _arguments $options '*:file:_pigeon_files'",
            "}",
            'if [[ "$funcstack[1]" == _pigeon ]]; then _pigeon "$@"; else compdef _pigeon pigeon; fi',
        ]
    )


def fish_script() -> str:
    names = " ".join(COMMANDS)
    lines = ["# fish completion of pigeon; made by `pigeon completions fish`"]
    for command in COMMANDS.values():
        lines.append(f"complete -c pigeon -n __fish_is_first_arg -a {command.name} -d {_quote_word(command.summary)}")
        inside = _quote_word(f"__fish_seen_subcommand_from {command.name}")
        for word, text in _completion_words_of(command):
            lines.append(f"complete -c pigeon -f -n {inside} -a {word} -d {_quote_word(text)}")
        lines += [_format_fish_option(row, inside) for row in _visible_rows(command.rows)]
    outside = _quote_word(f"not __fish_seen_subcommand_from {names}")
    lines += [_format_fish_option(row, outside) for row in _visible_rows(list_option_rows())]
    lines.append(f"complete -c pigeon -n {_quote_word(FISH_MENTIONED)} -a {_quote_word(FISH_MENTIONS)}")
    return "\n".join(lines)


def _has_file_value(row: Row) -> bool:
    return any(sign in row[1] for sign in FILES)


def _format_fish_option(row: Row, condition: str) -> str:
    names, value, text = row
    parts = ["complete -c pigeon", f"-n {condition}"]
    for name in names.split():
        # Short names of two letters are "old style" options there.
        parts.append(f"-l {name[2:]}" if name.startswith("--") else f"-{'s' if len(name) == 2 else 'o'} {name[1:]}")
    words = WORDS.get(names.split()[0])
    if words:
        parts.append(f"-x -a {_quote_word(' '.join(words))}")
    elif value and not value.startswith("["):
        parts.append("-r" if _has_file_value(row) else "-x")
    return " ".join([*parts, f"-d {_quote_word(text)}"])


def _format_zsh_specs(row: Row) -> list[str]:
    names, value, text = row
    words = WORDS.get(names.split()[0])
    action = f"({' '.join(words)})" if words else "_files" if _has_file_value(row) else ""
    tail = "" if not value or value.startswith("[") else f":{value.removesuffix('...').lower()}:{action}"
    about = text.replace("[", "(").replace("]", ")").replace(":", r"\:")
    return [_quote_word(f"{'*' if value.endswith('...') else ''}{name}[{about}]{tail}") for name in names.split()]


def _format_zsh_pair(word: str, text: str) -> str:
    return _quote_word(f"{word}:{text}" if text else word)


def _quote_word(text: str) -> str:
    """A word quoted for shells; the three agree on this form unless it ends in a backslash."""
    return "'" + text.replace("'", "'\\''") + "'"
