"""The parts of a transcript that still change, besides the text of the answer: the thought and the running commands."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.frontends.terminal.blocks import ThinkingText, ToolCard

# The name on the card of a command that the person runs.
SHELL_NAME = "!"


class StreamingThought:
    """The model's current thought, in the pieces in which it arrives. `now` is a steady clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pieces: list[str] = []
        self._since: float | None = None

    @property
    def is_open(self) -> bool:
        return self._since is not None

    def begin(self) -> None:
        self._since = self._now()
        self._pieces = []

    def add(self, delta: str) -> None:
        self._pieces.append(delta)

    def tail(self, most: int) -> str:
        """The last characters; the cost depends on `most`, however long the thought is."""
        pieces: list[str] = []
        length = 0
        for piece in reversed(self._pieces):
            pieces.append(piece)
            length += len(piece)
            if length >= most:
                break
        return "".join(reversed(pieces))[-most:]

    def end(self, content: str = "") -> ThinkingText | None:
        """The finished thought, with `content` instead of the pieces if given; None if there is no thought."""
        since, self._since = self._since, None
        text = content or "".join(self._pieces)
        self._pieces = []
        return ThinkingText(text, self._now() - since) if since is not None and text.strip() else None


class RunningCards:
    """The running tool calls and shell commands, and the output of the last one that ended."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._calls: dict[str, ToolCard] = {}
        self._shells: list[ToolCard] = []
        self._shell_count = 0
        self.last_output = ""

    @property
    def all(self) -> list[ToolCard]:
        """The tool calls first, then the shell commands of the person."""
        return [*self._calls.values(), *self._shells]

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def shell_since(self) -> float | None:
        """When the oldest running command of the person began; None if there is none."""
        return self._shells[0].started if self._shells else None

    def add_call(self, card: ToolCard) -> None:
        self._calls[card.call_id] = card

    def find_call(self, call_id: str) -> ToolCard | None:
        return self._calls.get(call_id)

    def end_call(self, call_id: str, failed: bool, output: str, diff: str | None, note: str = "") -> ToolCard | None:
        """The finished card of a tool call; None if it does not run."""
        card = self._calls.pop(call_id, None)
        if card is not None:
            self.last_output = output
            card.finish(self._now() - card.started, failed, output, diff, note)
        return card

    def fail_calls(self) -> list[ToolCard]:
        """End all tool calls as failed, with their output so far."""
        cards, self._calls = list(self._calls.values()), {}
        for card in cards:
            card.finish(self._now() - card.started, failed=True)
        return cards

    def begin_shell(self, command: str) -> ToolCard:
        """Add the card of a shell command; it stays among the running ones until `end_shell`."""
        self._shell_count += 1
        card = ToolCard(f"{SHELL_NAME}{self._shell_count}", SHELL_NAME, {"command": command}, self._now())
        self._shells.append(card)
        return card

    def end_shell(self, card: ToolCard, output: str) -> None:
        """End a shell command with this output; does nothing if it has ended already."""
        if card in self._shells:
            self._shells.remove(card)
            card.finish(self._now() - card.started, failed=False, output=output)
            self.last_output = output
