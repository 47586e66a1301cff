"""Records a real chat in a pseudo-terminal and draws it as an SVG that moves: `make picture` writes that of README.

A scripted model answers, so that no key is needed and the same is said every time; the agent, its tools and the screen
are the real ones. The picture has no script in it, uses the fonts of the system, follows the reader's choice of light
or dark, and stands still at its end for readers who want less motion. Rows that several moments share are drawn once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pyte
from pyte.screens import Char

from support.terminal import ENTER, PtyChat

TARGET = Path(__file__).parent.parent / "docs" / "pictures" / "chat.svg"
COLUMNS, ROWS = 80, 32
CELL, LINE, SIZE, EDGE, BAR = 8.4, 19, 14, 16, 34
ATTRIBUTES = {"bold": "b", "italics": "i", "underscore": "u", "blink": "d"}
COLOURS = {"red": "r", "green": "g", "brown": "y", "magenta": "m", "cyan": "c", "brightblack": "d"}
STYLE = """
svg{--back:#fff;--edge:#d0d7de;--text:#1f2328;--dim:#6e7781;--red:#cf222e;--green:#1a7f37;--yellow:#9a6700;
--magenta:#8250df;--cyan:#0c7489}
@media (prefers-color-scheme:dark){svg{--back:#0d1117;--edge:#30363d;--text:#e6edf3;--dim:#8b949e;--red:#ff7b72;
--green:#56d364;--yellow:#e3b341;--magenta:#d2a8ff;--cyan:#76e3ea}}
text{font:SIZEpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--text);
white-space:pre}
.window{fill:var(--back);stroke:var(--edge)}.light{fill:var(--edge)}.b{font-weight:bold}.i{font-style:italic}.u{text-decoration:underline}.d{fill:var(--dim)}.r{fill:var(--red)}
.g{fill:var(--green)}.y{fill:var(--yellow)}.m{fill:var(--magenta)}.c{fill:var(--cyan)}
"""
PROGRAM = """def mean(numbers):
    return sum(numbers) / len(numbers)


def spread(numbers):
    return max(numbers) - min(numbers)
"""
CHECKS = """import sys

from numbers_of import mean, spread

failed = False
for name, check in {
    "spread of two numbers": lambda: spread([1, 4]) == 3,
    "mean of two numbers": lambda: mean([1, 4]) == 2.5,
    "mean of no numbers": lambda: mean([]) == 0,
}.items():
    try:
        outcome = "ok" if check() else "wrong"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    failed = failed or outcome != "ok"
    print(f"{name}: {outcome}")
sys.exit(failed)
"""
REPLIES = [
    {
        "thinking": "I run the checks first, then look at the code that fails.",
        "text": "I'll run the checks and look at the code.",
        "toolCalls": [
            {"name": "bash", "arguments": {"command": "python3 -B checks.py"}},
            {"name": "read", "arguments": {"path": "numbers_of.py"}},
        ],
    },
    {
        "toolCalls": [
            {
                "name": "edit",
                "arguments": {
                    "path": "numbers_of.py",
                    "edits": [
                        {
                            "oldText": "    return sum(numbers) / len(numbers)\n",
                            "newText": "    if not numbers:\n        return 0\n"
                            "    return sum(numbers) / len(numbers)\n",
                        }
                    ],
                },
            }
        ]
    },
    {"toolCalls": [{"name": "bash", "arguments": {"command": "python3 -B checks.py"}}]},
    {
        "text": "The checks **pass** now. `mean([])` divided by the length of an empty list:\n\n"
        "- it returns `0` for an empty list\n- everything else is as it was",
        "usage": {"input": 2100, "output": 60},
    },
]
TITLE = "A chat with Pigeon: it runs the checks, asks before it changes a file, and mends it"
ASKED = "The checks fail. Find out why and mend it."


@dataclass(frozen=True)
class Moment:
    """What stands on the screen, and for how many seconds it is shown."""

    rows: tuple[str, ...]
    seconds: float


class DimScreen(pyte.Screen):
    """A screen that also knows dim letters, which pyte does not; they are kept as blinking, which nothing here does."""

    def select_graphic_rendition(self, *attributes: int, **_: object) -> None:
        """Take over the style of what follows."""
        extended = 38 in attributes or 48 in attributes
        numbers = attributes if extended else tuple(5 if one == 2 else one for one in attributes)
        super().select_graphic_rendition(*numbers)
        if 22 in attributes:
            super().select_graphic_rendition(25)


def record(folder: Path) -> list[Moment]:
    """Play the chat in a folder, which is filled for it."""
    project = folder / "numbers"
    project.mkdir()
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (project / "numbers_of.py").write_text(PROGRAM)
    (project / "checks.py").write_text(CHECKS)
    script = {"replies": REPLIES, "cost": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75}}
    (project / "example.json").write_text(json.dumps(script))
    options = ["--model", "scripted/example.json", "--permissions", '{"ask": ["edit"]}']
    moments = []
    with PtyChat(project, options, COLUMNS, ROWS, {"HOME": str(folder), "NO_COLOR": ""}) as chat:
        chat.until("context")
        moments.append(Moment(drawn(chat.raw), 1.2))
        first, _, rest = ASKED.partition(" Find")
        for written in (first, f" Find{rest}"):
            chat.type(written)
            chat.until(written.strip())
            moments.append(Moment(drawn(chat.raw), 0.8))
        chat.type(ENTER)
        chat.until(lambda text: "Yes, for this session" in text and "read numbers_of.py" in text)
        moments.append(Moment(drawn(chat.raw), 4.0))
        chat.type(ENTER)
        chat.until("everything else is as it was")
        chat.until(lambda text: "Esc stops it" not in text)
        moments.append(Moment(drawn(chat.raw), 7.0))
        chat.type("\x04")
        chat.wait_for_exit()
    return moments


def drawn(sent: bytes) -> tuple[str, ...]:
    """The rows of the screen after all that was sent to it, as SVG."""
    screen = DimScreen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(sent)
    return tuple(_row(screen, number) for number in range(ROWS))


def _row(screen: pyte.Screen, number: int) -> str:
    """Runs of one style, each with its place, so that the columns are right in every font."""
    cells = screen.buffer[number]
    runs: list[tuple[int, str, str]] = []
    for column in range(screen.columns):
        cell = cells[column]
        style = _style(cell)
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0], style, runs[-1][2] + cell.data)
        else:
            runs.append((column, style, cell.data))
    parts = []
    for column, style, text in runs:
        shown = text.rstrip()
        if shown:
            left = column + len(shown) - len(shown.lstrip())
            shown = shown.lstrip()
            named = f' class="{style}"' if style else ""
            place = f'x="{EDGE + left * CELL:g}" textLength="{len(shown) * CELL:g}"'
            parts.append(f"<tspan {place}{named}>{escape(shown)}</tspan>")
    return "".join(parts)


def _style(cell: Char) -> str:
    letters = [letter for name, letter in ATTRIBUTES.items() if getattr(cell, name)]
    if cell.fg in COLOURS and COLOURS[cell.fg] not in letters:
        letters.append(COLOURS[cell.fg])
    return " ".join(letters)


def picture(moments: list[Moment]) -> str:
    """The whole SVG: each different row once, each moment a list of rows."""
    used = {row for moment in moments for row in moment.rows if row}
    names = {row: f"t{number}" for number, row in enumerate(sorted(used))}
    width, height = EDGE * 2 + COLUMNS * CELL, BAR + LINE * ROWS + EDGE
    total = sum(moment.seconds for moment in moments)
    style = [STYLE.replace("SIZE", str(SIZE))]
    shown = []
    at = 0.0
    for number, moment in enumerate(moments):
        begin, at = at, at + moment.seconds
        last = moment is moments[-1]
        rows = [f'<use href="#{names[row]}" y="{BAR + LINE * line}"/>' for line, row in enumerate(moment.rows) if row]
        hidden = "" if last else ' visibility="hidden"'
        shown.append(f'<g id="m{number}"{hidden}>{"".join(rows)}</g>')
        frames = [(0.0, number == 0), (begin / total, True), *([] if last else [(at / total, False)])]
        steps = "".join(f"{100 * when:.2f}%{{visibility:{'visible' if on else 'hidden'}}}" for when, on in frames)
        style.append(f"@keyframes k{number}{{{steps}}}")
        style.append(
            "@media (prefers-reduced-motion:no-preference)"
            f"{{#m{number}{{animation:k{number} {total:g}s step-end infinite}}}}"
        )
    texts = [f'<text id="{name}" y="{SIZE}">{row}</text>' for row, name in names.items()]
    lights = "".join(f'<circle cx="{EDGE + 6 + 20 * n}" cy="17" r="6" class="light"/>' for n in range(3))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" '
            f'width="{width:g}" height="{height}" role="img" aria-labelledby="title">',
            f'<title id="title">{TITLE}</title>',
            f"<style>{''.join(style)}</style>",
            f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1}" rx="8" class="window"/>',
            lights,
            f"<defs>{''.join(texts)}</defs>",
            *shown,
            "</svg>\n",
        ]
    )


def main() -> int:
    """Write the picture to the file that is named, or to its place in the docs."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    with tempfile.TemporaryDirectory() as folder:
        made = picture(record(Path(folder)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(made, encoding="utf-8")
    sys.stdout.write(f"{target}: {len(made.encode()):,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
