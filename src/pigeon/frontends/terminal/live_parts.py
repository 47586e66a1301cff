"""The parts of a transcript that still change, besides the text of the answer: the thought and the running commands."""

from __future__ import annotations

from collections.abc import Callable

from pigeon.frontends.terminal.blocks import ThinkingText, ToolCard

# The name of the card of a command that the person runs.
SHELL_NAME = "!"


class StreamingThought:
    """What the model is thinking, in the pieces in which it arrives. `now` is a steady clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pieces: list[str] = []
        self._since: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the model is thinking."""
        return self._since is not None

    def begin(self) -> None:
        self._since = self._now()
        self._pieces = []

    def add(self, delta: str) -> None:
        self._pieces.append(delta)

    def tail(self, most: int) -> str:
        """The last characters; costs what is shown, however long the thought is."""
        pieces: list[str] = []
        length = 0
        for piece in reversed(self._pieces):
            pieces.append(piece)
            length += len(piece)
            if length >= most:
                break
        return "".join(reversed(pieces))[-most:]

    def end(self, content: str = "") -> ThinkingText | None:
        """The finished thought, with `content` in place of the pieces if it is given; None if there is none."""
        since, self._since = self._since, None
        text = content or "".join(self._pieces)
        self._pieces = []
        return ThinkingText(text, self._now() - since) if since is not None and text.strip() else None


class RunningCards:
    """The tool calls and the person's own commands that run, and what was written last by one that has ended."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._calls: dict[str, ToolCard] = {}
        self._shells: list[ToolCard] = []
        self._shell_count = 0
        self.last_output = ""

    @property
    def all(self) -> list[ToolCard]:
        """The tool calls first, then the commands of the person."""
        return [*self._calls.values(), *self._shells]

    @property
    def has_calls(self) -> bool:
        """Whether at least one tool call runs."""
        return bool(self._calls)

    @property
    def shell_since(self) -> float | None:
        """When the oldest running command of the person began; None if there is none."""
        return self._shells[0].started if self._shells else None

    def begin_call(self, card: ToolCard) -> None:
        self._calls[card.call_id] = card

    def find_call(self, call_id: str) -> ToolCard | None:
        """The card of a tool call that runs."""
        return self._calls.get(call_id)

    def end_call(self, call_id: str, failed: bool, output: str, diff: str | None) -> ToolCard | None:
        """The finished card of a tool call; None if it does not run."""
        card = self._calls.pop(call_id, None)
        if card is not None:
            self.last_output = output
            card.finish(self._now() - card.started, failed, output, diff)
        return card

    def fail_calls(self) -> list[ToolCard]:
        """End all tool calls as failed, with what they have written so far."""
        cards, self._calls = list(self._calls.values()), {}
        for card in cards:
            card.finish(self._now() - card.started, failed=True)
        return cards

    def begin_shell(self, command: str) -> ToolCard:
        """A command of the person begins; its card is among the running ones until `end_shell`."""
        self._shell_count += 1
        card = ToolCard(f"{SHELL_NAME}{self._shell_count}", SHELL_NAME, {"command": command}, self._now())
        self._shells.append(card)
        return card

    def end_shell(self, card: ToolCard, output: str) -> None:
        """A command of the person has ended with this output; does nothing if that was known."""
        if card in self._shells:
            self._shells.remove(card)
            card.finish(self._now() - card.started, failed=False, output=output)
            self.last_output = output
