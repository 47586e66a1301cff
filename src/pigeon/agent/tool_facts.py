"""What a tool declares about its calls besides its description for the model: kind, title, and subject.

Code that shows, permits, exports or summarises tool calls uses these facts instead of knowing tools by name. If there
is only a name, as in a session file or a stream, they are found in `tools/catalog.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pigeon.wire.base import Json
from pigeon.wire.events import ToolKind

Arguments = dict[str, Json]
MOST_LINES = 1 << 53


class ToolFacts(Struct, frozen=True):
    """The facts of one tool; the defaults are those of a tool that Pigeon does not know.

    `title` makes a line for a person from the arguments of a call. `command` and `path` name the argument that is the
    subject of the call, which permission rules match; without either, rules match all arguments. `line` names the
    argument that is a line of the file. `other_names` are those that session files of other agents have for the same
    tool.
    """

    title: Callable[[Arguments], str]
    kind: ToolKind = "other"
    command: str = ""
    path: str = ""
    line: str = ""
    other_names: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The argument that permission rules match; empty if they match all of them."""
        return self.command or self.path

    def find_path(self, arguments: Arguments) -> str | None:
        """The file or folder of a call, as the model wrote it."""
        path = arguments.get(self.path) if self.path else None
        return path if isinstance(path, str) else None

    def find_line(self, arguments: Arguments) -> int | None:
        """The line that a call starts at."""
        line = arguments.get(self.line) if self.line else None
        return int(line) if isinstance(line, int | float) and 1 <= line < MOST_LINES else None

    def find_changed_file(self, arguments: Arguments) -> str | None:
        """The file that a call changes, as the model wrote it; None for a call that changes no named file."""
        return self.find_path(arguments) if self.kind == "edit" else None


def make_default_facts(name: str) -> ToolFacts:
    """The facts of a tool of which only the name is known, which is then the title of its calls."""
    return ToolFacts(lambda arguments: name)
