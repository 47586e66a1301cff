// HTML from the agent, made fit for the page.
//
// A tool may print ten million characters, or two million on one line, and a browser lays out a million of them in half a
// second. So of a long line its beginning is shown, and of a long text its first part. The rest is there, but hidden: what is copied
// is whole, and a button shows more of it.

import { element } from "./dom.js";

const LONGEST_LINE = 5000;
const LONGEST_PARAGRAPH = 20000;
const LONGEST_TEXT = 100000;
const MORE_AT_ONCE = 200000;
// What is measured for itself, which of that has lines, and what has one button for all that is left out of it.
const TEXTS = "pre, p, li, td, th, dd, h3, h4, h5, h6, del, ins, .l, .r, .gap";
const LINES = "pre, del, ins, .l, .r";
const AROUND = ".diff, .code, pre";

// Escaped and cleaned by the agent's renderer, and the policy of this page runs no script in it.
export function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

export function rendered(html) {
  const content = parsed(html);
  if (html.length > LONGEST_LINE) shorten(content);
  return content;
}

// Hide what is too long in a part of the page, and put a button behind it that shows more.
export function shorten(content) {
  const walker = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  const left = new Map();   // the hidden parts, by what has the button for them
  let within = null;
  let room;
  for (const node of nodes) {
    const text = node.parentElement?.closest(TEXTS) ?? node.parentNode;
    if (text.matches?.(".numbers")) continue;
    if (text !== within) { within = text; room = roomOf(text); }
    const hidden = hideIn(node, room);
    if (!hidden.length) continue;
    const place = text.closest?.(".diff, .code") ?? text;
    if (!left.has(place)) left.set(place, []);
    left.get(place).push(...hidden);
  }
  for (const [place, hidden] of left) {
    const button = element("button", { type: "button", class: "quiet link more-text", onclick: () => showMore(place, hidden, button) });
    label(place, hidden, button);
    if (place.matches?.(AROUND)) place.after(button); else place.append(button);
  }
}

function roomOf(text) {
  const most = text.matches?.(LINES) ? LONGEST_LINE : LONGEST_PARAGRAPH;
  return { most, line: most, text: LONGEST_TEXT, hides: false };
}

// Wrap what there is no room for, in parts that can be shown at once; `room` is what is left of it for the line and for the
// text. Gives the hidden elements.
function hideIn(node, room) {
  const { data } = node;
  const spans = [];
  for (let at = 0; at < data.length;) {
    // Behind the last line there is room for, the ends of lines are hidden too.
    const next = data.indexOf("\n", at);
    const end = next < 0 || Math.min(next - at, room.line) >= room.text ? data.length : next;
    let fits = Math.max(0, Math.min(end - at, room.line, room.text));
    // Both halves of one character stay together.
    if (at + fits < end && /[\udc00-\udfff]/.test(data[at + fits])) fits += 1;
    if (at + fits < end) spans.push([at + fits, end]);
    room.line = end === data.length ? room.line - fits : room.most;
    room.text -= fits + 1;
    at = end + 1;
  }
  if (!spans.length) { room.hides = false; return []; }
  const hidden = [];
  const made = [];
  let past = 0;
  for (const [from, to] of spans) {
    made.push(data.slice(past, from));
    if (from > 0 || !room.hides) made.push(element("span", { class: "dots" }));
    for (past = from; past < to; past = Math.min(to, past + MORE_AT_ONCE)) {
      const part = element("span", { hidden: true }, document.createTextNode(data.slice(past, Math.min(to, past + MORE_AT_ONCE))));
      hidden.push(part);
      made.push(part);
    }
  }
  room.hides = past === data.length;
  node.replaceWith(...made, data.slice(past));
  return hidden;
}

function showMore(place, hidden, button) {
  for (let shown = 0; hidden.length && shown < MORE_AT_ONCE;) {
    const part = hidden.shift();
    shown += part.textContent.length;
    part.hidden = false;
    const dots = part.previousSibling?.className === "dots" ? part.previousSibling : null;
    if (part.nextSibling?.hidden) part.after(dots ?? ""); else dots?.remove();
  }
  label(place, hidden, button);
  if (hidden.length) return;
  const next = place.matches?.(AROUND) ? place : button.parentElement;
  button.remove();
  if (next.tabIndex < 0) next.tabIndex = -1;
  next.focus();
}

// Say how much is left out; beside a file, only the lines that are shown have their numbers.
function label(place, hidden, button) {
  // Unchanged lines of a diff stand there twice.
  const count = hidden.reduce((sum, part) => sum + (part.closest(".r") ? 0 : part.textContent.length), 0);
  button.textContent = `Show more (${count.toLocaleString("en")} characters are left out)`;
  const numbers = place.querySelector(":scope > .numbers");
  if (!numbers) return;
  const all = (button.numbers ??= numbers.textContent.split("\n"));
  numbers.textContent = all.slice(0, linesShown(numbers.nextElementSibling)).join("\n");
}

function linesShown(code) {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  let lines = 1;
  while (walker.nextNode()) if (!walker.currentNode.parentElement.hidden) lines += walker.currentNode.data.split("\n").length - 1;
  return lines;
}
