"""The style sheet of conversations: light and dark, wide and narrow screens, paper.

There is no script, so switches for readers are implemented here: `details` fold, and the radio buttons and the checkbox
at the top of a page (`view-*`, `contents`) decide about what follows them. (`:has()` could ask them from anywhere, but
a browser then takes several times as long to open a large page.) The page allows the sheet by its hash.
"""

from __future__ import annotations

import base64
import hashlib

_LIGHT = """color-scheme: light; --page: #fff; --side: #f6f7f9; --text: #1c2127; --dim: #5d6773; --line: #dfe3e8;
  --user: #eef4fd; --code: #f6f7f9; --link: #1a5fb4; --bad: #b3261e; --good: #1b7f3b; --mark: #8a5a00; --tag: #fff3d6;
  --add: #e4f6e8; --add-word: #abe3b8; --del: #fdebea; --del-word: #f8bfba;
  --k: #9a2393; --s: #20703a; --n: #0b5cad; --c: #616a74; --f: #3d4fc4; --t: #8a4b08; --b: #0b6e75; --d: #7a5a00;
  --cached: #a9bfdd; --new: #2f6fc1; --out: #d98a1f;"""
_DARK = """color-scheme: dark; --page: #15181b; --side: #1b1f23; --text: #e3e6e9; --dim: #9aa4af; --line: #32393f;
  --user: #1b2735; --code: #1d2226; --link: #8ab8ff; --bad: #ff8a80; --good: #6fd08c; --mark: #ffcf70; --tag: #3a2f14;
  --add: #14301d; --add-word: #23603a; --del: #381b1b; --del-word: #7a2d2d;
  --k: #d79bf0; --s: #8fd19e; --n: #8ab8ff; --c: #8b959f; --f: #a9b6ff; --t: #f0b27a; --b: #7fd3da; --d: #e0c170;
  --cached: #3f5876; --new: #6ea3e8; --out: #e5a44b;"""
# By default the reader's system decides. A page with a script may set `data-theme` on its root.
COLOURS = f"""
:root {{ {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {_DARK} }} }}
"""
_CHOSEN_DARK = f"""
@media screen {{ :root[data-theme="dark"] {{ {_DARK} }} }}
"""

_PAGE = """
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
a { color: var(--link); }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0; overflow-wrap: anywhere; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: .5rem; top: .5rem; background: var(--page); padding: .3rem .6rem; z-index: 2; }
.top, main, footer { max-width: 58rem; margin: 0 auto; padding: 0 1.25rem; }
.top { padding-top: 1.5rem; }
.top > p { margin: .2rem 0 .5rem; color: var(--dim); font-size: .86rem; }
footer { color: var(--dim); font-size: .84rem; padding-top: 2rem; padding-bottom: 3rem; }
.about .inner { padding: .4rem 0 1rem; }
.about details > summary { font-size: .88rem; }
.about :is(th, td) { padding: .1rem .6rem; font-size: .88rem; } .about td { text-align: right; }
.about > summary { color: var(--link); font-size: .95rem; }
.about .charts { display: flex; flex-wrap: wrap; gap: 1rem; margin-top: 1rem; }
figure { margin: 0; flex: 1 1 17rem; max-width: 30rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 11px; fill: var(--dim); }
svg .head { fill: var(--text); font-weight: 600; }
svg line { stroke: var(--line); }
.cached { fill: var(--cached); } .new { fill: var(--new); } .out { fill: var(--out); }
.cost { fill: var(--cached); stroke: var(--new); stroke-width: 1.5; }
.legend { font-size: .84rem; color: var(--dim); margin: .4rem 0; }
.legend span::before { content: ""; display: inline-block; width: .7em; height: .7em; margin: 0 .35em 0 .6em; }
.key-cached::before { background: var(--cached); } .key-new::before { background: var(--new); }
.key-out::before { background: var(--out); }
"""

_LISTS = """
.bookmark { background: var(--tag); color: var(--mark); border-radius: 4px; padding: 0 .4em; font-size: .92em; }
dl { display: grid; grid-template-columns: fit-content(40%) minmax(0, 1fr); gap: .1rem 1rem; margin: 0;
  align-items: baseline; font-size: .92rem; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
"""

_SIDE = """
.side { background: var(--side); font-size: .88rem; line-height: 1.4; }
.side h2 { font-size: .78rem; text-transform: uppercase; letter-spacing: .05em; color: var(--dim);
  margin: 1.2rem 0 .4rem; }
.side ol, .side ul { list-style: none; margin: 0; padding: 0; }
.side li { padding: .28rem .5rem; border-radius: 6px; }
.side li a { color: inherit; text-decoration: none; overflow-wrap: anywhere; display: -webkit-box;
  -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
.side li:hover, .side li:focus-within { background: var(--line); }
.toggle { position: absolute; opacity: 0; pointer-events: none; }
.opens { display: inline-block; cursor: pointer; color: var(--link); font-size: .95rem; }
.opens::before { content: "▸ "; } #contents:checked ~ .side .opens::before { content: "▾ "; }
#contents:focus-visible ~ .side .opens { outline: 2px solid var(--link); }
@media (max-width: 63.99rem) {
  .side { padding: .3rem 1.25rem; margin: .2rem 0; background: none; }
  #contents:not(:checked) ~ .side .panel { display: none; } }
@media (min-width: 64rem) {
  body { display: grid; grid-template-columns: 17rem minmax(0, 1fr); grid-template-rows: auto auto 1fr; }
  .side { grid-column: 1; grid-row: 1 / -1; border-right: 1px solid var(--line); }
  .panel { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; padding: .6rem .8rem 2rem; }
  #contents, .opens { display: none; }
  .top, main, footer { grid-column: 2; width: 100%; } }
"""

_TALK = """
article { margin: 0 0 1rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
main > article, .branch > article { content-visibility: auto; contain-intrinsic-size: auto 8rem; }
article > header { display: flex; flex-wrap: wrap; gap: .1rem .7rem; align-items: baseline; font-size: .82rem;
  color: var(--dim); margin-bottom: .2rem; }
article > header h2 { color: var(--text); font-size: .9rem; margin: 0; }
article > header a { margin-left: auto; color: inherit; text-decoration: none; opacity: .5; }
article > header a:hover, article > header a:focus { opacity: 1; }
article.user { background: var(--user); border-radius: 12px; padding: .7rem 1rem; margin-top: 1.6rem; }
article:is(.custom, .summary, .shell) { border: 1px solid var(--line); border-radius: 10px; padding: .6rem 1rem; }
.body > :first-child { margin-top: 0; }
.body > :last-child { margin-bottom: 0; }
.body p { margin: .6em 0; }
.body :is(h3, h4, h5, h6) { font-size: 1.05rem; margin: 1.1em 0 .4em; }
.body h3 { font-size: 1.2rem; }
.body :is(ul, ol) { padding-left: 1.5rem; margin: .5em 0; }
.body img { display: block; max-width: 100%; max-height: 40rem; margin: .5rem 0; border-radius: 6px; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .94em; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left; }
blockquote { margin: .5rem 0; padding-left: .9rem; border-left: 3px solid var(--line); color: var(--dim); }
code, pre, .mono, .diff { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .84rem; line-height: 1.5; }
pre { margin: .5rem 0; padding: .6rem .8rem; background: var(--code); border-radius: 8px; overflow: auto;
  max-height: 36rem; tab-size: 4; white-space: pre-wrap; overflow-wrap: anywhere; }
pre code { font-size: 1em; }
:not(pre) > code { background: var(--code); padding: .1em .3em; border-radius: 4px; }
pre.text { font: inherit; background: none; padding: 0; margin: 0; max-height: none; }
.changed dl { text-align: left; }
.changed { text-align: center; font-size: .82rem; color: var(--dim); margin: 0 0 1rem; overflow-wrap: anywhere; }
.note, .label { color: var(--dim); font-size: .84rem; }
.label { margin: .6rem 0 0; }
.bad { color: var(--bad); } .added { color: var(--good); } .removed { color: var(--bad); }
.forks { font-size: .84rem; color: var(--dim); border-left: 3px solid var(--mark); padding-left: .7rem;
  margin: 0 0 1rem; }
main > h2 { font-size: 1.05rem; margin: 2.5rem 0 .6rem; }
.branch { margin: 0 0 .6rem; border: 1px solid var(--line); border-left: 3px solid var(--mark); border-radius: 8px;
  padding: .5rem 1rem; }
:target { outline: 2px solid var(--link); outline-offset: 3px; border-radius: 6px; }
"""

_CARDS = """
summary { cursor: pointer; overflow-wrap: anywhere; }
.card, .body details { border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0; }
.card > summary, .body details > summary { padding: .3rem .7rem; font-size: .88rem; }
.card > summary code { background: none; padding: 0; }
.card .inner, .body details > .inner { padding: 0 .7rem .5rem; }
.card .inner > pre, .card .inner > .code, .card .inner > .diff { margin: 0 0 .2rem; }
.thinking { color: var(--dim); font-size: .92rem; }
.body details.thinking { border: 0; border-left: 3px solid var(--line); border-radius: 0; }
.arguments { font-size: .84rem; margin-bottom: .4rem; }
.code { display: flex; background: var(--code); border-radius: 8px; max-height: 36rem; overflow: auto; }
.code pre { margin: 0; max-height: none; background: none; white-space: pre; overflow: visible; flex: 1; }
.code .numbers { flex: none; position: sticky; left: 0; background: var(--code); color: var(--dim); text-align: right;
  padding-right: .6rem; user-select: none; -webkit-user-select: none; }
.terminal { background: #1e2227; color: #dfe3e7; }
.asked { color: #9fd0ff; font-weight: 600; }
.asked::before { content: "$ "; color: #8b959f; }
.plan { list-style: none; padding: 0; margin: 0; font-size: .92rem; }
.body .plan { padding: 0; }
.plan .phase { font-weight: 600; margin-top: .4rem; }
.plan .pending::before { content: "○ "; } .plan .done::before { content: "✓ "; color: var(--good); }
.plan .in-progress::before { content: "▸ "; color: var(--link); } .plan .dropped::before { content: "✕ "; }
.plan .done, .plan .dropped { color: var(--dim); } .plan .dropped { text-decoration: line-through; }
.plan .state { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.plan li { position: relative; }
.diff { border: 1px solid var(--line); border-radius: 8px; overflow: auto; max-height: 36rem; }
.diff .gap { background: var(--side); color: var(--dim); padding: 0 .6rem; }
.diff :is(span, del, ins) { display: block; text-decoration: none; white-space: pre-wrap; word-break: break-all;
  min-height: 1.5em; padding: 0 .5rem 0 4.1rem; position: relative; tab-size: 4; }
.diff [data-n]::before { content: attr(data-n); position: absolute; left: 0; width: 2.6rem; text-align: right;
  color: var(--dim); }
.diff .l::before { content: attr(data-new); }
.diff del { background: var(--del); } .diff ins { background: var(--add); }
.diff del::after, .diff ins::after { position: absolute; left: 3.1rem; top: 0; content: "+"; color: var(--good); }
.diff del::after { content: "\\2212"; color: var(--bad); }
.diff b { font-weight: inherit; border-radius: 3px; }
.diff del b { background: var(--del-word); } .diff ins b { background: var(--add-word); }
.diff .r { display: none; }
@media screen and (min-width: 80rem) {
  .diff .change, .diff .same { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr);
    grid-auto-flow: row dense; background: var(--side); }
  .diff .same { background: none; }
  .diff .r { display: block; } .diff .l::before { content: attr(data-n); }
  .diff :is(del, .l) { grid-column: 1; } .diff :is(ins, .r) { grid-column: 2; border-left: 1px solid var(--line); } }
.k { color: var(--k); } .s { color: var(--s); } .n { color: var(--n); } .c { color: var(--c); font-style: italic; }
.f { color: var(--f); } .t { color: var(--t); } .b { color: var(--b); } .d { color: var(--d); }
.i { color: var(--good); } .x { color: var(--bad); }
"""

# fmt: off
_TERMINAL_COLOURS = (
    "#7b8794", "#ff8a80", "#7ddc94", "#f2cf6b", "#82b4ff", "#e29bf5", "#72d6de", "#dfe3e7", "#9aa4af", "#ffb0a8",
    "#a5ecb5", "#ffe396", "#a9ccff", "#efc0fb", "#a2e9ee", "#ffffff",
)
_BACKGROUNDS = (
    "#000000", "#8c2b25", "#1f6b34", "#7a5d12", "#23508f", "#73358a", "#1c6a72", "#9aa4af", "#4b545d", "#a63a33",
    "#2b8746", "#94741d", "#3266b3", "#8c46a6", "#25848d", "#dfe3e7",
)
# fmt: on

_TERMINAL_STYLES = """
.t-bold { font-weight: 700; } .t-dim { opacity: .7; } .t-italic { font-style: italic; }
.t-under { text-decoration: underline; } .t-struck { text-decoration: line-through; }
.t-inverse { background: #dfe3e7; color: #1e2227; }
"""

_SWITCHES = """
.view { display: none; }
@supports selector(::details-content) { .view { display: block; }
  #view-open:checked ~ main :is(.branch, article details, details.changed)::details-content {
    content-visibility: visible; display: block; height: auto; }
  #view-talk:checked ~ main :is(.card, .thinking, .changed, .work, article.tool, article.custom) { display: none; } }
.view label { display: block; padding: .1rem .5rem; cursor: pointer; }
.view label::before { content: "○ "; }
#view-folded:checked ~ .side [for="view-folded"]::before, #view-open:checked ~ .side [for="view-open"]::before,
#view-talk:checked ~ .side [for="view-talk"]::before { content: "● "; color: var(--link); }
#view-folded:focus-visible ~ .side [for="view-folded"], #view-open:focus-visible ~ .side [for="view-open"],
#view-talk:focus-visible ~ .side [for="view-talk"] { outline: 2px solid var(--link); }
@media (max-width: 40rem) {
  .top, main, footer { padding-left: .9rem; padding-right: .9rem; }
  .top { padding-top: .8rem; }
  h1 { font-size: 1.1rem; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
  .side { padding-left: .9rem; padding-right: .9rem; } }
@media print {
  body { display: block; font-size: 11pt; }
  .side, .skip, article > header a, .about details { display: none; }
  .top, main, footer { max-width: none; padding: 0; }
  pre, .code, .diff { max-height: none; overflow: visible; }
  .code pre { white-space: pre-wrap; }
  .code .numbers { display: none; }
  .terminal { background: none; color: inherit; border: 1px solid var(--line); }
  .terminal span { color: inherit; background: none; }
  article { content-visibility: visible; }
  article.user, article > header, summary, .body :is(h3, h4, h5, h6) { break-after: avoid; }
  .diff :is(span, del, ins), tr, img { break-inside: avoid; }
  details::details-content { content-visibility: visible; display: block; height: auto; } }
"""


_NARROW = """
@media (max-width: 40rem) {
  article.user { margin-top: 1rem; padding: .6rem .8rem; }
  .diff { font-size: .78rem; }
  .diff :is(span, del, ins) { padding-left: 3.2rem; } .diff [data-n]::before { width: 1.9rem; }
  .diff del::after, .diff ins::after { left: 2.3rem; } }
"""


def _make_terminal_css() -> str:
    rules = (
        f".fg{at} {{ color: {colour}; }} .bg{at} {{ background: {behind}; }}"
        for at, (colour, behind) in enumerate(zip(_TERMINAL_COLOURS, _BACKGROUNDS, strict=True))
    )
    return "\n".join(rules)


_ENTRIES = _TALK + _CARDS + _make_terminal_css() + _TERMINAL_STYLES + _NARROW
CSS = COLOURS + _PAGE + _LISTS + _SIDE + _ENTRIES + _SWITCHES
# For entries on other pages than ours.
CONVERSATION_CSS = COLOURS + _CHOSEN_DARK + _LISTS + _ENTRIES


def style_hash() -> str:
    """The hash of the sheet for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode("ascii")
