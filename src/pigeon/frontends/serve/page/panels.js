// What opens beside the conversation: search, branches, help, a choice among many.

import { byId, element, notice, openWindow, timeAgo, typing } from "./dom.js";

const KEYS = [
  ["Enter", "Send; while the agent works, steer it"], ["Shift+Enter", "New line"], ["Alt+Enter", "Queue: send when the agent has finished"],
  ["Esc", "Stop the agent, or close what is open"], ["↑ ↓ Enter Esc", "With an empty box: select an answer, take it, or decline"], ["Alt+K", "Sessions"], ["Alt+N", "New session"],
  ["Alt+F", "Search this conversation"], ["Alt+B", "Other branches"], ["Alt+C", "Changes of this session in files"], ["Alt+A", "Agents and background"], ["Alt+G", "Let the running command go on in the background"], ["Alt+M", "Model"], ["Alt+T", "Thinking level"],
  ["Alt+J", "Newest message"], ["Alt+I", "Message box"], ["↑", "In an empty box: your previous messages"], ["/  @", "In the box: commands, files"], ["?", "This help"],
];

const MOST_MARKED = 200;
const MOST_PICKED = 300;

export function showHelp() {
  const rows = KEYS.flatMap(([key, about]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, about)]);
  openWindow("Keyboard shortcuts", element("dl", { class: "keys" }, ...rows),
    element("p", { class: "note" }, "Images can be pasted into the message box or dropped on the page."));
}

export class Search {
  constructor() {
    this.conversation = null;
    this.input = element("input", { type: "search", placeholder: "Search this conversation", "aria-label": "Search this conversation", autocomplete: "off" });
    this.count = element("span", { class: "note", role: "status" });
    this.list = element("ol", { class: "hits" });
    byId("search").append(element("form", { onsubmit: (event) => { event.preventDefault(); this._step(1); } }, this.input, this.count,
      element("button", { type: "button", class: "quiet", "aria-label": "Close the search", onclick: () => this.close() }, "✕")), this.list);
    this.input.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this._find(), 200); });
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); this.close(); }
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); this._step(event.key === "ArrowDown" ? 1 : -1); }
    });
  }

  open(conversation) {
    this.conversation = conversation;
    byId("search").hidden = false;
    this.input.focus();
    this.input.select();
  }

  close() {
    byId("search").hidden = true;
    globalThis.CSS?.highlights?.delete("found");
    for (const old of byId("entries").querySelectorAll(".found")) old.classList.remove("found");
    this.list.replaceChildren();
    byId("message").focus();
  }

  async _find() {
    const text = this.input.value;
    this.at = -1;
    if (!text.trim()) { this.list.replaceChildren(); this.count.textContent = ""; return; }
    let answer;
    try { answer = await this.conversation.ask("find_text", { text }); } catch (error) { this.count.textContent = error.message; return; }
    if (text !== this.input.value) return;
    this.hits = answer.found;
    this.count.textContent = answer.found.length ? `${answer.found.length}${answer.more ? "+" : ""} found` : "nothing found";
    this.list.replaceChildren(...answer.found.map((hit, at) => element("li", {}, element("button", { type: "button", class: "quiet", onclick: () => this._go(at) },
      element("span", { class: "note" }, hit.role), " ", ...marked(hit.text, text)))));
  }

  _step(by) {
    if (this.hits?.length) this._go((this.at + by + this.hits.length) % this.hits.length);
  }

  async _go(at) {
    this.at = at;
    [...this.list.children].forEach((row, number) => row.classList.toggle("chosen", number === at));
    this.list.children[at]?.scrollIntoView({ block: "nearest" });
    const piece = await this.conversation.show(this.hits[at].entryId);
    if (piece) unfold(piece, this.input.value);
    this.count.textContent = `${at + 1} of ${this.hits.length}`;
  }
}

// Open what is folded around the words that were looked for, mark them, and go to the first.
function unfold(piece, text) {
  const wanted = text.toLowerCase();
  for (const part of piece.querySelectorAll("details")) if (part.textContent.toLowerCase().includes(wanted)) part.open = true;
  const found = [];
  const walker = document.createTreeWalker(piece, NodeFilter.SHOW_TEXT);
  while (found.length < MOST_MARKED && walker.nextNode()) {
    const node = walker.currentNode;
    const said = node.data.toLowerCase();
    // Letters that are longer in lower case would shift the places.
    if (said.length !== node.data.length) continue;
    for (let at = said.indexOf(wanted); at >= 0; at = said.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      found.push(range);
    }
  }
  globalThis.CSS?.highlights?.set("found", new Highlight(...found));
  (found[0]?.startContainer.parentElement ?? piece).scrollIntoView({ block: "center" });
}

function marked(text, wanted) {
  const at = text.toLowerCase().indexOf(wanted.toLowerCase());
  return at < 0 ? [text] : [text.slice(0, at), element("mark", {}, text.slice(at, at + wanted.length)), text.slice(at + wanted.length)];
}

// Why there is no model, and what to do; `tryDemo()` chooses the one that needs no key.
export function explainNoModel(tryDemo) {
  return element("div", { class: "no-model" },
    element("p", {}, "No API key is set, so there is no model to ask. Set one where pigeon serve runs, then start it again:"),
    element("pre", { tabindex: "0" }, "export ANTHROPIC_API_KEY=\u2026"),
    element("p", { class: "note" }, "Other providers have their own variables, such as OPENAI_API_KEY or GEMINI_API_KEY. A model server of your own goes into models.json."),
    element("p", { class: "talk-only" }, element("button", { type: "button", class: "first", onclick: tryDemo }, "Try the demo model"), " ",
      element("span", { class: "note" }, "It needs no key and shows how everything works.")));
}

// The branches of the tree; `go(entryId)` goes to one.
export async function showBranches(conversation, go) {
  const { branches } = await conversation.ask("get_branches");
  const rows = branches.map((branch) => element("li", {}, element("button", {
    type: "button", class: "quiet", disabled: branch.active, onclick: async () => { opened.close(); await go(branch.leafId); },
  }, element("span", { class: "name" }, branch.title || "(nothing said)"),
    element("span", { class: "note" }, `${branch.active ? "shown now · " : ""}${branch.entries} entries · ${timeAgo(branch.timestamp)}`))));
  const opened = openWindow("Branches of this conversation",
    element("p", { class: "note" }, "A branch begins where a message was edited and sent again: press Edit on one of your messages. Nothing is lost on the others."),
    element("ul", { class: "branch-list" }, ...rows));
}

export async function goTo(conversation, composer, entryId) {
  try {
    const answer = await conversation.ask("navigate_tree", { entryId });
    if (answer.cancelled) return;
    if (answer.text) composer.setText(answer.text);
    // It took a while: what the reader has begun to type in meanwhile keeps the keys.
    if (!typing()) composer.focus();
  } catch (error) { notice(error.message, { kind: "error" }); }
}

// A window in which one of many things is chosen: a field that filters, and a list that arrow keys walk through. `rows` are { key, group, name, about }; `chosen(key)` is called with the one that was taken.
export function pick(title, rows, current, chosen) {
  const input = element("input", { type: "text", role: "combobox", placeholder: "Type to filter", "aria-label": "Filter", "aria-expanded": "true", "aria-controls": "picker", autocomplete: "off", spellcheck: false });
  const list = element("ul", { id: "picker", class: "picker", role: "listbox", "aria-label": title });
  const opened = openWindow(title, input, list);
  let at = 0;
  const options = () => [...list.querySelectorAll("[role=option]")];
  const take = (key) => { opened.close(); chosen(key); };
  const mark = (scroll = true) => {
    options().forEach((row, number) => row.classList.toggle("chosen", number === at));
    const row = options()[at];
    if (row) input.setAttribute("aria-activedescendant", row.id); else input.removeAttribute("aria-activedescendant");
    if (scroll) row?.scrollIntoView({ block: "nearest" });
  };
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = rows.filter((row) => { const text = `${row.key} ${row.name}`.toLowerCase(); return words.every((word) => text.includes(word)); });
    const shown = matching.slice(0, MOST_PICKED);
    let group = null;
    list.replaceChildren(...shown.flatMap((row, number) => {
      const head = row.group === group ? [] : [element("li", { class: "group", role: "presentation" }, row.group)];
      group = row.group;
      return [...head, element("li", { id: `picker-${number}`, role: "option", "aria-selected": String(row.key === current), title: row.key, onclick: () => take(row.key) },
        element("span", { class: "name" }, row.name), row.about ? element("span", { class: "note" }, row.about) : null)];
    }));
    if (matching.length > shown.length) list.append(element("li", { class: "hint", role: "presentation" }, `${matching.length - shown.length} more: type to filter`));
    if (!shown.length) list.append(element("li", { class: "hint", role: "presentation" }, "Nothing matches"));
    at = words.length ? 0 : Math.max(0, shown.findIndex((row) => row.key === current));
    mark();
  };
  input.addEventListener("input", show);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const most = options().length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); if (most) at = (at + (event.key === "ArrowDown" ? 1 : -1) + most) % most; mark(); }
    else if (event.key === "Enter") { event.preventDefault(); options()[at]?.click(); }
  });
  show();
  input.focus();
}
