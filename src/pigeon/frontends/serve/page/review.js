// What a session has changed in files: a list of them, in which each unfolds to all of its changes put together.
//
// The agent puts them together when it is asked. The list is asked for when a run has ended, the changes of a file when it is
// unfolded. This part is loaded when it is opened for the first time.

import { element, named, openWindow } from "./dom.js";
import { rendered } from "./rendered.js";

const MOST_AT_ONCE = 3;
const MOST_UNFOLDED = 30;

export class Review {
  // `show(entryId)` goes to the place in the conversation.
  constructor(conversation, show) {
    this.conversation = conversation;
    this.show = show;
    this.rows = new Map();
    this.total = element("p", { class: "note", role: "status" });
    this.all = element("button", { type: "button", class: "quiet link", onclick: () => this._unfoldAll() }, "Unfold all");
    this.list = element("div", { class: "files" });
    this.window = openWindow("Changes of this session", element("div", { class: "review-top" }, this.total, this.all), this.list);
    this.window.classList.add("review");
    this.list.addEventListener("keydown", (event) => this._key(event));
    this.changed();
    if (this.rows.size <= MOST_AT_ONCE) for (const { row } of this.rows.values()) row.open = true;
    this.list.querySelector("summary")?.focus();
  }

  get isOpen() { return this.window.open; }

  // The files are known anew: what was unfolded stays so, and is asked for again.
  changed() {
    const { files } = this.conversation.changes;
    const count = (kind) => files.reduce((sum, file) => sum + file[kind], 0);
    this.total.replaceChildren(files.length ? `${files.length} ${files.length === 1 ? "file" : "files"}` : "No tool has changed a file on this branch.", ...counts(count("added"), count("removed")));
    this.all.hidden = files.length < 2 || files.length > MOST_UNFOLDED;
    const before = this.rows;
    const focused = [...before].find(([, { row }]) => row.contains(document.activeElement))?.[0];
    this.rows = new Map(files.map((file) => {
      const old = before.get(file.path);
      const same = old && ["added", "removed", "entryId"].every((key) => old.file[key] === file[key]);
      return [file.path, same ? old : this._made(file, old?.row.open ?? false)];
    }));
    this.list.replaceChildren(...[...this.rows.values()].map(({ row }) => row));
    if (focused) (this.rows.get(focused)?.row ?? this.list).querySelector("summary")?.focus();
    this._showAll();
  }

  _made(file, open) {
    const path = named(file.path);
    const at = path.lastIndexOf("/") + 1;
    const back = file.added + file.removed ? null : element("span", { class: "note" }, "changed back");
    const body = element("div", { class: "inner" });
    const row = element("details", { class: "file" },
      element("summary", {}, element("code", {}, element("span", { class: "dim" }, path.slice(0, at)), path.slice(at)), element("span", { class: "counts" }, ...counts(file.added, file.removed), back)), body);
    row.addEventListener("toggle", () => { this._showAll(); if (row.open && !body.childElementCount) this._load(file, body); });
    row.open = open;
    return { file, row };
  }

  async _load(file, body) {
    body.replaceChildren(element("p", { class: "note working" }, "Comparing"));
    try {
      const answer = await this.conversation.ask("get_changes", { path: file.path, format: "html" });
      const { diffs, whole, entryId } = answer.files[0];
      const parts = diffs.flatMap((html, at) => [at ? element("p", { class: "note" }, "Something else has changed the file in between:") : null, rendered(html)]);
      if (!diffs.length) parts.push(element("p", { class: "note" }, "Everything was changed back."));
      body.replaceChildren(...parts.filter(Boolean), element("div", { class: "below" },
        element("span", { class: "note" }, whole ? "Written as a whole. If the file existed before, its old text is not on record." : ""),
        element("button", { type: "button", class: "quiet link", onclick: () => { this.window.close(); this.show(entryId); } }, "Show the last change in the conversation")));
      for (const long of body.querySelectorAll(".diff")) { long.tabIndex = 0; long.setAttribute("role", "region"); long.setAttribute("aria-label", `Changes of ${named(file.path)}`); }
    } catch (error) {
      body.replaceChildren(element("p", { class: "bad", role: "alert" }, error.message), element("button", { type: "button", onclick: () => this._load(file, body) }, "Try again"));
    }
  }

  _unfoldAll() {
    const open = !this._allOpen();
    for (const { row } of this.rows.values()) row.open = open;
    this._showAll();
  }

  _allOpen() { return [...this.rows.values()].every(({ row }) => row.open); }

  _showAll() { this.all.textContent = this._allOpen() ? "Fold all" : "Unfold all"; }

  _key(event) {
    if ((event.key !== "ArrowDown" && event.key !== "ArrowUp") || !event.target.matches("summary")) return;
    event.preventDefault();
    const heads = [...this.list.querySelectorAll("summary")];
    heads[heads.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
  }
}

function counts(added, removed) {
  return [added ? element("span", { class: "added" }, ` +${added.toLocaleString("en")}`) : null, removed ? element("span", { class: "removed" }, ` \u2212${removed.toLocaleString("en")}`) : null].filter(Boolean);
}
