"""What the model is told about its job. No date: the prompt must stay the same across days to stay cached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PREAMBLE = (
    "You are Pigeon, a coding agent that works on the user's machine through the tools below. "
    "You read before you change, change only what was asked for, and check that what you did works."
)
SHELL_EXPLORES = "Explore with the shell: ls, find and grep through bash."
ALWAYS = (
    "Be brief: say what you did and what matters, leave out what the user can see.",
    "Name files by their path.",
)


def system_prompt(
    cwd: str,
    tools: Iterable[tuple[str, str]],
    guidelines: Sequence[str] = (),
    custom: str | None = None,
    appended: Sequence[str] = (),
) -> str:
    """The whole prompt; `custom` replaces everything but what was appended and the folder."""
    parts = [custom] if custom is not None else _own(list(tools), guidelines)
    if appended:
        parts.append("<addendum>\n" + "\n\n".join(appended) + "\n</addendum>")
    parts.append(f"<cwd>\n{cwd}\n</cwd>")
    return "\n\n".join(parts)


def _own(tools: list[tuple[str, str]], guidelines: Sequence[str]) -> list[str]:
    names = {name for name, _ in tools}
    listed = "\n".join(f"- {name}: {snippet}" for name, snippet in tools if snippet) or "(none)"
    rules = [SHELL_EXPLORES] if "bash" in names and not names & {"grep", "find", "ls"} else []
    rules.extend(rule for rule in (*guidelines, *ALWAYS) if rule not in rules)
    return [
        PREAMBLE,
        f"<tools>\n{listed}\n</tools>",
        "<rules>\n" + "\n".join(f"- {rule}" for rule in rules) + "\n</rules>",
    ]
