"""The exported page in a real browser: at the width of a desk and of a phone, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pigeon.app.pages import export_session_page
from pigeon.system.environment import Environment
from support.browser import ATTACKS, NEEDS_BROWSER, Browser, BrowserPage
from support.sessions import FIRST_PROMPT, OTHER_PROMPT, SessionLines, rich_session

pytestmark = NEEDS_BROWSER
DESK, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def rich_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_page(tmp_path_factory.mktemp("exported"), rich_session())


def export_page(folder: Path, session: str) -> Path:
    (folder / "session.jsonl").write_text(session)
    environment = Environment(variables={}, home=str(folder), cwd=str(folder))
    return folder / export_session_page(environment, "session.jsonl", "page.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


def open_page(browser: Browser, page: Path, size: tuple[int, int], scheme: str = "light") -> BrowserPage:
    return BrowserPage(browser, page, *size, scheme)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_page_fits_is_readable_and_asks_for_nothing(
    browser: Browser, rich_page: Path, size: tuple[int, int], scheme: str
) -> None:
    page = open_page(browser, rich_page, size, scheme)
    assert page.complaints() == []
    assert page.requests() == []
    assert page.overflow() == 0
    page.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.overflow() == 0
    shades = page.ask(f"({CONTRASTS})()")
    assert [shade for shade in shades if shade[1] < 4.5] == []


# For each kind of text its contrast to what is behind it, as the accessibility guidelines reckon it.
CONTRASTS = """() => {
  const channel = value => { value /= 255; return value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4; };
  const figures = colour => colour.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const behind = one => { for (; one; one = one.parentElement) {
    const found = figures(getComputedStyle(one).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found; }
    return [255, 255, 255]; };
  const kinds = 'h1, .top p, article p, header h2, time, .note, .changed, .bookmark, summary, .terminal, .asked, ' +
    '.fg1, .fg2, .k, .s, .n, .c, .f, .t, .b, .d, .numbers, del, ins, .gap, .diff b, .forks, .side a, dt, dd, ' +
    '.plan li, .bad, td';
  const found = kinds.split(', ').map(kind => [kind, document.querySelector(kind)]).filter(([, one]) => one);
  return found.map(([kind, one]) => {
    const [a, b] = [light(figures(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
    return [kind, (a + .05) / (b + .05)]; });
}"""


def test_attacks_of_every_kind_run_nothing_load_nothing_and_change_no_shape(browser: Browser, tmp_path: Path) -> None:
    lines = SessionLines()
    for attack in (text.replace("\ud800", "?") for text in ATTACKS):
        lines.user(attack)
        lines.tool("bash", {"command": attack}, attack, details={"diff": f"+{attack}"})
        lines.tool("write", {"path": f"{attack}.html", "content": attack}, attack)
        lines.answer(attack, f"```html\n{attack}\n```")
    page = open_page(browser, export_page(tmp_path, lines.text()), DESK)
    assert (page.complaints(), page.requests()) == ([], [])
    assert page.ask("document.querySelectorAll('script, iframe, object, embed, form, base, link, video').length") == 0
    assert page.ask("document.querySelectorAll('article.user').length") == len(ATTACKS)
    assert page.ask("document.querySelectorAll('main > article').length") == 4 * len(ATTACKS)
    named = "[...document.querySelectorAll('*')].flatMap(one => one.getAttributeNames())"
    assert page.ask(f"{named}.filter(name => name.startsWith('on') || name === 'style')") == []


def test_the_first_screen_of_a_phone_shows_the_first_prompt(browser: Browser, rich_page: Path) -> None:
    page = open_page(browser, rich_page, PHONE)
    shown = page.ask("document.querySelector('article.user').getBoundingClientRect().bottom")
    # What the browser has not drawn yet has no `innerText`.
    text = page.ask("document.querySelector('article.user .body').textContent")
    assert text.strip() == FIRST_PROMPT.replace("**", "").replace("`", "")
    assert shown < PHONE[1] / 2
    assert not visible(page, ".panel")
    page.ask("document.querySelector('.opens').click()")
    assert visible(page, ".panel")


def test_the_contents_stand_beside_the_talk_where_there_is_room(browser: Browser, rich_page: Path) -> None:
    page = open_page(browser, rich_page, DESK)
    assert visible(page, ".panel")
    assert page.ask("document.querySelector('.side').getBoundingClientRect().right") <= page.ask(
        "document.querySelector('main').getBoundingClientRect().left"
    )


def test_a_change_is_side_by_side_on_a_desk_and_one_below_the_other_on_a_phone(
    browser: Browser, rich_page: Path
) -> None:
    def places(size: tuple[int, int]) -> tuple[float, float, float, float]:
        boxes = "['del', 'ins'].map(tag => document.querySelector(tag).getBoundingClientRect())"
        old, new = open_page(browser, rich_page, size).ask(f"{boxes}.map(box => [box.left, box.top])")
        return (*old, *new)

    left, top, other_left, other_top = places((1400, 900))
    assert (top == other_top, left < other_left) == (True, True)
    left, top, other_left, other_top = places(PHONE)
    assert (left == other_left, top < other_top) == (True, True)


def test_a_reader_opens_everything_or_sees_the_talk_alone(browser: Browser, rich_page: Path) -> None:
    page = open_page(browser, rich_page, DESK)
    assert not visible(page, ".thinking .inner")
    page.ask("document.querySelector('#view-open').click()")
    assert visible(page, ".thinking .inner")
    assert visible(page, ".branch article")
    page.ask("document.querySelector('#view-talk').click()")
    assert not visible(page, ".card")
    assert not visible(page, ".thinking")
    assert visible(page, "article.user")


def test_a_link_to_another_branch_opens_it(browser: Browser, rich_page: Path) -> None:
    page = open_page(browser, rich_page, DESK)
    link = "[...document.querySelectorAll('.forks a')].find(one => one.textContent.trim().startsWith('Rather'))"
    assert not visible(page, ".branch article")
    page.ask(f"{link}.click()")
    page.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.ask("document.querySelector('.branch[open]:has(:target) > summary').innerText").endswith(OTHER_PROMPT)
    assert visible(page, ".branch article")


def test_on_paper_everything_is_open_and_nothing_is_cut(browser: Browser, rich_page: Path) -> None:
    page = open_page(browser, rich_page, DESK, "dark")
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    for part in (".thinking .inner", ".card .inner", ".branch article"):
        assert visible(page, part), part
    assert not visible(page, ".side")
    assert page.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    cut = "[...document.querySelectorAll('pre, .code, .diff')].filter(one => one.scrollHeight > one.clientHeight + 1)"
    assert page.ask(f"{cut}.length") == 0


def visible(page: BrowserPage, selector: str) -> bool:
    one = f"document.querySelector('{selector}')"
    return bool(page.ask(f"{one}.checkVisibility() && {one}.getBoundingClientRect().height > 0"))
