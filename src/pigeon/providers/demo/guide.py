"""The script of the demo model as data: the tools and the words with which it reacts to which sentences.

`model.py` plays it. In every text, `{name}` stands for a value: what a group of that name matched (`path`, `text`,
`command`, `old`, `new`, `content`), or what is derived from it or from a tool's result (`_values_of` and
`_result_text`).
"""

from __future__ import annotations

import re

from msgspec import Struct

from pigeon.wire.base import Json

SHELL_TOOL = "bash"
QUOTED = r'"(?:\\.|[^"\\])*"|\'[^\']*\'|`[^`]*`|“[^”]*”'
_VALUE = rf"(?:{QUOTED}|\S+)"
_VERBS = "list|read|show|open|cat|run|execute|write|create|replace|change|search|find|look"
SEPARATOR = re.compile(rf"({QUOTED})|[,;.]?\s+(?:and\s+then|then|and)\s+(?=(?:{_VERBS})\b)|\n+\s*(?=\S)", re.IGNORECASE)
POLITENESS = re.compile(
    r"^(?:(?:please|hi|hello|hey|now|ok|okay|so|and|then|can you|could you|would you|i want you to)\b[,:!.]*\s+)+", re.I
)


class DemoAction(Struct, frozen=True, kw_only=True):
    """An action of the demo: by `tool`, or if that is not offered, by `command` in a shell.

    Of several `arguments`, the first is used whose keys the offered tool has. `done` reports a result, `when_empty` one
    without content.
    """

    name: str
    forms: tuple[re.Pattern[str], ...]
    goal: str
    tool: str = ""
    arguments: tuple[dict[str, Json], ...] = ()
    command: str = ""
    lists_names: bool = False
    done: str
    when_empty: str = ""


ACTIONS = (
    DemoAction(
        name="run",
        forms=(
            re.compile(r"^[!$]\s*(?P<command>.+)$", re.S),
            re.compile(rf"^(?:run|execute)\s+(?:the\s+command\s+)?(?P<command>{QUOTED}|.+)$", re.I | re.S),
        ),
        goal="run `{command}`",
        command="{command}",
        done="I ran `{command}`. It printed:\n\n{block}",
        when_empty="I ran `{command}`.",
    ),
    DemoAction(
        name="replace",
        forms=(
            re.compile(
                rf"^(?:replace|change|substitute)\s+(?P<old>{_VALUE})\s+(?:with|by|to|into)\s+(?P<new>{_VALUE})"
                rf"\s+in\s+(?:the\s+)?(?:file\s+)?(?P<path>{_VALUE})$",
                re.I | re.S,
            ),
        ),
        goal='replace "{old}" with "{new}" in {path}',
        tool="edit",
        arguments=(
            {"path": "{path}", "edits": [{"oldText": "{old}", "newText": "{new}"}]},
            {"path": "{path}", "oldText": "{old}", "newText": "{new}"},
        ),
        done='Done: "{old}" is now "{new}" in {path}.',
    ),
    DemoAction(
        name="write",
        forms=(
            re.compile(
                rf"^(?:write|put|save)\s+(?P<content>{QUOTED}|.+?)\s+(?:in)?to\s+(?:the\s+|a\s+)?(?:new\s+)?"
                rf"(?:file\s+)?(?:called\s+|named\s+)?(?P<path>{_VALUE})$",
                re.I | re.S,
            ),
            re.compile(
                rf"^(?:create|make|write)\s+(?:a\s+|the\s+)?(?:new\s+)?(?:file\s+)?(?:called\s+|named\s+)?"
                rf"(?P<path>{_VALUE})\s+(?:with|containing|that says)\s+"
                rf"(?:the\s+)?(?:text\s+|contents?\s+)?(?P<content>{QUOTED}|.+)$",
                re.I | re.S,
            ),
        ),
        goal="write {path}",
        tool="write",
        arguments=({"path": "{path}", "content": "{content}"},),
        done="Done: I wrote {path} ({size} characters).",
    ),
    DemoAction(
        name="list",
        forms=(
            re.compile(
                r"^(?:(?:list|show)\s+(?:me\s+)?(?:all\s+)?(?:the\s+|my\s+)?(?:files|folder|directory)|list|ls|"
                r"(?:what|which)\s+files\s+(?:are|do)\b(?:\s+there|\s+you\s+see|\s+we\s+have|\s+i\s+have)?|"
                r"what(?:'s|\s+is)\s+(?:in\s+)?(?:this|the)\s+(?:folder|directory))"
                r"(?:\s+(?:here|in\s+(?:this|the|the\s+current)\s+(?:folder|directory)|"
                rf"(?:(?:in|of|under)\s+)?(?P<path>{_VALUE})))?$",
                re.I,
            ),
        ),
        goal="list what is in {folder}",
        tool="ls",
        arguments=({"path": "{path}"},),
        command="ls -A {path}",
        lists_names=True,
        done="I see {entries} in {folder}:\n\n{listing}",
        when_empty="There is nothing in {folder}.",
    ),
    DemoAction(
        name="search",
        forms=(
            re.compile(
                rf"^(?:search\s+for|search|find|grep|look\s+for)\s+(?P<text>{_VALUE})(?:\s+in\s+(?P<path>{_VALUE}))?$",
                re.I,
            ),
        ),
        goal='search for "{text}" in {folder}',
        tool="grep",
        arguments=({"pattern": "{regex}", "path": "{path}"},),
        command="grep -rn --exclude-dir=.git -- {text} {path} || true",
        done='"{text}" in {folder}:\n\n{block}',
        when_empty='"{text}" is nowhere there.',
    ),
    DemoAction(
        name="read",
        forms=(
            re.compile(
                r"^(?:read|show|open|cat|print|display|what(?:'s|\s+is)\s+in|what\s+does)\s+(?:me\s+)?(?:the\s+)?"
                rf"(?:contents?\s+of\s+)?(?:the\s+)?(?:file\s+)?(?P<path>{_VALUE})(?:\s+(?:say|contain|file))?$",
                re.I,
            ),
        ),
        goal="read {path}",
        tool="read",
        arguments=({"path": "{path}"},),
        command="cat {path}",
        done="{path} has {lines}\n\n{block}",
        when_empty="{path} is empty.",
    ),
)
LISTING = next(action for action in ACTIONS if action.lists_names)

EXAMPLES = (
    "- list the files\n"
    "- read README.md\n"
    "- run `python3 --version`\n"
    "- write hello to notes.txt\n"
    '- replace "hello" with "goodbye" in notes.txt\n'
    "- search for TODO in src\n"
    "- list the files, then read README.md"
)
WHO = "I am the demo model that is built into Pigeon: a few rules, no network and no key."
REPLIES = (
    (
        re.compile(r"^(?:hi|hello|hey|howdy|greetings|good (?:morning|afternoon|evening|day))\b[^?]{0,30}$", re.I),
        f"Hello! {WHO} You can ask me, for example:\n\n{EXAMPLES}",
    ),
    (re.compile(r"^(?:thanks|thank you|cheers|great|nice|well done)\b[^?]{0,30}$", re.I), "You are welcome."),
    (
        re.compile(
            r"\b(?:who|what) are you\b|\bwhat (?:can|do) you do\b|^help\b|\bhow do (?:i|you) (?:use|work)\b", re.I
        ),
        f"{WHO} I understand plain sentences like these, and do them with real tools:\n\n{EXAMPLES}",
    ),
)
NOT_UNDERSTOOD = 'I do not understand "{request}"'
NOT_ASKED = "I was not asked anything"
CANNOT = (
    f". {WHO} I cannot write programs or answer questions; choose a real model for that. What I can do:\n\n{EXAMPLES}"
)
