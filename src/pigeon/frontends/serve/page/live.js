// What is under way: the answer that is being written, and the output of tools that run.
//
// A model may send a thousand deltas a second. A delta is added to a string, and nothing else; once per frame the new
// text is put on the page as text, and a few times a second the agent is asked to render the unfinished end of it. Finished
// paragraphs are cut off, so that the work for a delta does not grow with the length of the answer.

import { element, named, now, spanOf } from "./dom.js";
import { parsed, rendered } from "./rendered.js";

const RENDER_EVERY = 150;
const LONG_TAIL = 4000;
// A paragraph longer than this is not rendered before its end: all of it would be, time and again.
const LONGEST_TAIL = 40000;
const MOST_OUTPUT = 40000;
const LONG_CALL = 3000;

// Calls `paint` of all that have asked for it, once per frame.
export class Frames {
  constructor(after) {
    this.asked = new Set();
    this.after = after;
  }

  ask(one) {
    if (this.asked.size === 0) requestAnimationFrame(() => this._paint());
    this.asked.add(one);
  }

  _paint() {
    const asked = [...this.asked];
    this.asked.clear();
    for (const one of asked) one.paint();
    this.after();
  }
}

// One text of an answer. `render(markdown)` gives a promise of HTML.
export class LiveText {
  constructor(frames, render) {
    this.frames = frames;
    this.render = render;
    this.tail = "";          // what is not cut off yet
    this.open = "";          // the first line of the fence that the tail is inside of
    this.fresh = "";         // came since the last frame
    this.shown = 0;          // how much of the tail the last rendering covers
    this.busy = false;
    this.timer = null;
    this.text = document.createTextNode("");
    this.end = element("div", { class: "tail" }, this.text);
    this.element = element("div", { class: "live-text" }, this.end);
  }

  add(delta) {
    this.fresh += delta;
    this.frames.ask(this);
  }

  paint() {
    addTo(this.text, this.fresh);
    this.tail += this.fresh;
    this.fresh = "";
    if (!this.timer && !this.busy) this.timer = setTimeout(() => this._render(), RENDER_EVERY);
  }

  stop() {
    clearTimeout(this.timer);
    this.stopped = true;
  }

  async _render() {
    this.timer = null;
    this.busy = true;
    const tail = this.tail;
    const { at, open } = cutOf(tail, this.open);
    try {
      const head = at ? await this.render(this.open + tail.slice(0, at) + (open ? fenceOf(open) : "")) : "";
      const long = tail.length - at > LONGEST_TAIL;
      const rest = long ? "" : await this.render(open + tail.slice(at));
      if (!this.stopped && (at || !long)) this._show(head, rest, long ? at : tail.length, at, open);
    } catch { /* the text stands there as it came; the next rendering may work */ }
    this.busy = false;
    if (!this.stopped && (this.tail.length > tail.length - at || this.fresh)) this.timer = setTimeout(() => this._render(), RENDER_EVERY);
  }

  _show(head, rest, length, at, open) {
    if (at) this.element.insertBefore(element("div", { class: this.open ? "cut goes-on" : "cut" }, rendered(head)), this.end);
    this.tail = this.tail.slice(at);
    this.open = open;
    this.text = document.createTextNode("");
    addTo(this.text, this.tail.slice(length - at));
    this.end.className = open ? "tail goes-on" : "tail";
    this.end.replaceChildren(parsed(rest));
    innermost(this.end).append(this.text);
    this.frames.ask({ paint() {} });
  }
}

// Text at the end of what is shown; of a very long one the newest part stays, and the whole comes with the entry.
function addTo(text, fresh) {
  text.appendData(fresh);
  if (text.length > MOST_OUTPUT * 2) text.data = "…" + text.data.slice(-MOST_OUTPUT);
}

// New text goes on inside the last paragraph, list item or block of code.
function innermost(place) {
  for (;;) {
    const last = place.lastElementChild;
    if (!last || !last.matches("p, ul, ol, li, pre, code, blockquote, div")) return place;
    place = last;
  }
}

const fenceOf = (line) => /^ *(`{3,}|~{3,})/.exec(line)?.[1] ?? "```";

// Up to where a text will not change any more: behind its last paragraph; in a long list also before an item, and in a long
// block of code behind a line. Such a block goes on as one of its own, and `open` is its first line.
export function cutOf(text, opened) {
  const long = text.length > LONG_TAIL;
  let fence = opened ? fenceOf(opened) : "";
  let first = opened;
  let safe = 0;
  let at = 0;
  for (let next; (next = text.indexOf("\n", at)) >= 0; at = next + 1) {
    const line = text.slice(at, next);
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (fence) {
      if (mark && mark[0] === fence[0] && mark.length >= fence.length && line.trim() === mark) fence = first = "";
    } else if (mark) {
      fence = mark;
      first = line + "\n";
    } else {
      const following = text.slice(next + 1, next + 4);
      const blank = line.trim() === "";
      if (blank && at > 0 && following && (long || !/^(\s|[-*+>|]|\d+[.)])/.test(following))) safe = next + 1;
      else if (long && /^([-*+] |\d+[.)])/.test(following)) safe = next + 1;
    }
  }
  if (safe) return { at: safe, open: "" };
  return fence && long && at > 0 ? { at, open: first } : { at: 0, open: opened };
}

// One answer while it is written. Blocks are numbered by the model's server.
export class LiveAnswer {
  constructor(frames, ask, calls) {
    this.frames = frames;
    this.ask = ask;
    this.calls = calls;
    this.blocks = new Map();
    this.done = false;
    this.body = element("div", { class: "body", dir: "auto" });
    this.element = element("article", { class: "assistant live" }, this.body);
  }

  take(event) {
    const at = event.contentIndex;
    switch (event.type) {
      case "text_delta": this._text(at).add(event.delta); break;
      case "thinking_start": this._thinking(at); break;
      case "thinking_delta": this._thinking(at).add(event.delta); break;
      case "thinking_end": this._thinking(at).finish(); break;
      case "toolcall_start": this._call(at, event); break;
      case "toolcall_delta": this._call(at, event).add(event.delta); break;
      case "toolcall_end": this._call(at, event).finish(event.toolCall); break;
    }
  }

  stop() {
    for (const block of this.blocks.values()) block.stop?.();
  }

  _block(at, make) {
    let block = this.blocks.get(at);
    if (!block) {
      block = make();
      this.blocks.set(at, block);
      this.body.append(block.element);
    }
    return block;
  }

  _text(at) {
    return this._block(at, () => new LiveText(this.frames, async (markdown) => (await this.ask("render_html", { markdown })).html));
  }

  _thinking(at) {
    return this._block(at, () => new LiveThinking(this.frames));
  }

  _call(at, event) {
    return this._block(at, () => new LiveCall(this.frames, event.toolName ?? event.toolCall?.name ?? "", this.ask, this.calls));
  }
}

class LiveThinking {
  constructor(frames) {
    this.frames = frames;
    this.fresh = "";
    this.text = document.createTextNode("");
    this.head = element("summary", { class: "working" }, "Thinking");
    this.element = element("details", { class: "thinking" }, this.head, element("div", { class: "inner lines" }, this.text));
  }

  add(delta) { this.fresh += delta; this.frames.ask(this); }
  paint() { addTo(this.text, this.fresh); this.fresh = ""; }
  finish() { this.head.className = ""; }
}

// A call while the model writes it: its arguments are counted, since half of a JSON text tells little.
class LiveCall {
  constructor(frames, name, ask, calls) {
    this.frames = frames;
    this.name = name;
    this.ask = ask;
    this.calls = calls;
    this.size = 0;
    this.note = element("span", { class: "note working" }, "writing the call");
    this.element = element("details", { class: "card" }, element("summary", {}, element("b", {}, named(name)), " ", this.note));
  }

  add(delta) { this.size += delta.length; this.frames.ask(this); }
  paint() { if (this.size > 400) this.note.textContent = `writing the call, ${Math.round(this.size / 100) / 10} k characters`; }

  async finish(call) {
    this.element.dataset.call = call.id;
    this.note.textContent = "waiting";
    try {
      const { html } = await this.ask("render_html", { call: { name: call.name, arguments: call.arguments ?? {} } });
      const card = rendered(html).firstElementChild;
      card.dataset.call = call.id;
      this.element.replaceWith(card);
      this.element = card;
      this.calls.mark(card, "waiting");
    } catch { /* the name of the tool stands there */ }
  }
}

// Tools that run: their output goes into the card of the call, wherever that is.
export class RunningCalls {
  constructor(frames, place) {
    this.frames = frames;
    this.place = place;       // finds the card of a call by its id
    this.running = new Map();
    this.asked = new Set();   // the calls that the reader is asked about
    this.over = new Map();    // calls that have ended, whose results are not on record yet, and whether they have failed
  }

  // Whether the reader is asked about a call: the question shows what it would do, so its card is folded meanwhile.
  hold(id, asked) {
    if (asked) this.asked.add(id); else this.asked.delete(id);
    const call = this.running.get(id);
    if (call) { call.asked = asked; call.since = now(); }
    const card = call && this.place(id);
    if (card) this.attach(card);
  }

  start(id, name, command = false) {
    const asked = this.asked.has(id);
    this.running.set(id, { name, command, text: "", since: now(), output: null, asked });
    const card = this.place(id);
    if (card) this.attach(card);
    return card !== null;
  }

  update(id, result) {
    const call = this.running.get(id);
    // What an agent does stands above the message box (agents.js).
    if (!call || result?.details?.agentId) return;
    const text = (result?.content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("");
    call.text = text.length > MOST_OUTPUT ? "…" + text.slice(-MOST_OUTPUT) : text;
    this.frames.ask(call.painter ??= { paint: () => this._paint(id) });
  }

  end(id, failed) {
    const card = this.place(id);
    this.running.delete(id);
    this.over.set(id, failed);
    if (card) this.mark(card, failed ? "failed" : "done");
  }

  clear() { this.running.clear(); this.asked.clear(); this.over.clear(); }

  // Once a second: say how long calls have been running.
  tick() {
    for (const [id, call] of this.running) {
      const card = !call.asked && now() - call.since > LONG_CALL && this.place(id);
      if (card) this.mark(card, "running", ` · ${spanOf(now() - call.since)}`);
    }
  }

  // Cards that were drawn anew get their output back.
  attachAll() {
    for (const [id, failed] of this.over) {
      const card = this.place(id);
      if (card?.querySelector("summary > .none")) this.mark(card, failed ? "failed" : "done");
    }
    for (const id of this.running.keys()) {
      const card = this.place(id);
      if (card) this.attach(card);
    }
  }

  attach(card) {
    const call = this.running.get(card.dataset.call);
    if (!call) return;
    this.mark(card, call.asked ? "asks you" : "running");
    call.output = null;
    if (call.asked) card.open = false;
    this._paint(card.dataset.call);
  }

  mark(card, state, more = "") {
    let note = card.querySelector("summary > .none");
    if (!note) {
      note = element("span", { class: "note none" });
      card.querySelector("summary")?.append(" ", note);
    }
    note.textContent = state === "done" ? "" : state + more;
    note.className = `note none ${["running", "waiting", "asks you"].includes(state) ? "working" : state === "failed" ? "bad" : ""}`;
  }

  _paint(id) {
    const call = this.running.get(id);
    const card = call && this.place(id);
    if (!card || !call.text) return;
    if (!call.output || !card.contains(call.output)) {
      call.output = element("pre", { class: "terminal output", tabindex: "0", "aria-label": "Output so far" });
      (card.querySelector(".inner") ?? card).append(call.output);
      card.open = true;
    }
    call.output.textContent = call.text;
    call.output.scrollTop = call.output.scrollHeight;
  }
}
