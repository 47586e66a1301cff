"""The picture of README: a chat that was really had, drawn as an SVG that is harmless and small."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from terminal_picture import TARGET, picture, record

MOST_BYTES = 60_000
ELEMENTS = ("svg", "title", "style", "rect", "circle", "defs", "text", "tspan", "g", "use")
SVG = "{http://www.w3.org/2000/svg}"


def texts_of_picture(svg: str) -> list[str]:
    """The text of each moment; fails where the file is not well-formed, or holds anything but a drawing."""
    root = ElementTree.fromstring(svg)
    allowed = {SVG + name for name in ELEMENTS}
    assert {element.tag for element in root.iter()} <= allowed
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    assert "url(" not in svg
    assert "@import" not in svg
    rows = {text.attrib["id"]: "".join(text.itertext()) for text in root.iter(f"{SVG}text")}
    moments = root.findall(f"{SVG}g")
    return ["\n".join(rows[use.attrib["href"][1:]] for use in moment) for moment in moments]


def test_the_script_records_a_chat_and_draws_it(tmp_path: Path) -> None:
    svg = picture(record(tmp_path))
    moments = texts_of_picture(svg)
    assert any("Yes,forthissession" in moment.replace(" ", "") for moment in moments)
    assert "meanofnonumbers:ok" in moments[-1].replace(" ", "")
    assert str(tmp_path) not in svg


@pytest.mark.parametrize("scheme", ["prefers-color-scheme:dark", "prefers-reduced-motion"])
def test_the_picture_of_readme_is_small_and_follows_what_its_reader_prefers(scheme: str) -> None:
    svg = TARGET.read_text(encoding="utf-8")
    assert len(svg.encode()) <= MOST_BYTES
    assert "mean of no numbers: ok" in texts_of_picture(svg)[-1]
    assert scheme in svg
