"""How the page looks: light and dark after the reader's system, narrow screens and paper included."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2127; --dim: #66707c; --line: #dde1e6;
  --user: #e9f1fd; --code: #f1f3f5; --link: #1a5fb4; --bad: #b3261e; --good: #1b7f3b; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1d2125; --text: #e3e6e9; --dim: #98a2ad;
  --line: #333a41; --user: #1c2a3d; --code: #15181b; --link: #8ab8ff; --bad: #ff8a80; --good: #6fd08c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 1rem; overflow-wrap: anywhere; }
article h1, article h2, article h3 { font-size: 1.1rem; margin: 1.2em 0 .4em; }
a { color: var(--link); }
code, pre, dd.mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .86em; }
pre { margin: .5rem 0; padding: .7rem .85rem; background: var(--code); border-radius: 6px; overflow-x: auto;
  max-height: 40rem; overflow-y: auto; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
pre code { font-size: 1em; }
:not(pre) > code { background: var(--code); padding: .1em .3em; border-radius: 4px; overflow-wrap: anywhere; }
pre.text { font: inherit; background: none; padding: 0; margin: 0; max-height: none; }
.facts, nav, article { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .9rem 1.1rem; margin: 0 0 1rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dt { color: var(--dim); }
dd { margin: 0; }
article > header { display: flex; flex-wrap: wrap; gap: .2rem .7rem; align-items: baseline; margin-bottom: .3rem;
  font-size: .84rem; color: var(--dim); }
article > header b { color: var(--text); font-size: .95rem; }
article > header a { margin-left: auto; color: inherit; text-decoration: none; }
article.user { background: var(--user); }
article p:first-child { margin-top: 0; }
article p:last-child { margin-bottom: 0; }
article img { display: block; max-width: 100%; max-height: 40rem; margin: .5rem 0; border-radius: 6px; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
blockquote { margin: .5rem 0; padding-left: .9rem; border-left: 3px solid var(--line); color: var(--dim); }
details { border: 1px solid var(--line); border-radius: 8px; padding: .4rem .8rem; margin: .6rem 0; }
nav details { border: 0; padding: 0; margin: 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
summary code { background: none; }
.thinking, .note, .change { color: var(--dim); }
.thinking pre { font-style: italic; }
.change { text-align: center; font-size: .86rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
.bad { color: var(--bad); }
.good, .added { color: var(--good); }
.removed { color: var(--bad); }
.label { font-size: .8rem; color: var(--dim); margin: .6rem 0 0; }
:target { outline: 2px solid var(--link); }
footer { color: var(--dim); font-size: .84rem; text-align: center; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
@media print { body { background: none; } pre { max-height: none; } article, .facts { break-inside: avoid-page; } }
"""
