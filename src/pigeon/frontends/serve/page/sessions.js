// The list of sessions, with search, and the window in which a folder is chosen for a new one.

import { baseName, byId, element, named, notice, openWindow, ordered, request, timeAgo } from "./dom.js";

const PAGE = 50;
const EVERY = 20000;
const MOST_OF_PROJECT = 6;

export class Sessions {
  // `open(id)` shows a session; `scoped(scope)` is told what the reader may do.
  constructor(open, scoped) {
    this.open = open;
    this.scoped = scoped;
    this.rows = [];
    this.current = null;
    this.cursor = null;
    this.unfolded = new Set();  // the projects of which all sessions are shown
    this.list = byId("sessions");
    this.filter = byId("filter");
    this.filter.addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.load(), 200); this._show(); });
    this.filter.addEventListener("keydown", (event) => { if (event.key === "ArrowDown") { event.preventDefault(); this.list.querySelector("a")?.focus(); } });
    this.list.addEventListener("keydown", (event) => this._key(event));
    byId("more-sessions").addEventListener("click", () => this.load(true));
    byId("new-session").addEventListener("click", () => this.chooseFolder());
    setInterval(() => { if (!document.hidden) this.load().catch(() => {}); }, EVERY);
  }

  async load(more = false) {
    const asked = new URLSearchParams({ limit: PAGE });
    if (this.filter.value.trim()) asked.set("query", this.filter.value.trim());
    if (more && this.cursor) asked.set("cursor", this.cursor);
    const number = this.asked = (this.asked ?? 0) + 1;
    const answer = await request(`/api/sessions?${asked}`);
    if (number !== this.asked) return this.rows;  // other words were typed meanwhile
    if (more) this.rows = [...this.rows, ...answer.sessions];
    else this.rows = answer.sessions;
    this.cursor = answer.nextCursor ?? null;
    this.scoped(answer.scope);
    byId("more-sessions").hidden = !this.cursor;
    this._show();
    return this.rows;
  }

  // Which one is shown; `name` and `state` are known of it before it is on disk.
  select(id, about = {}) {
    this.current = id;
    this.about = about;
    this._show();
  }

  _show() {
    const words = this.filter.value.trim().toLowerCase();
    const matching = this.rows.filter((row) => !words || `${row.name ?? ""} ${row.firstMessage ?? ""} ${row.cwd}`.toLowerCase().includes(words));
    if (this.current && !words && !this.rows.some((row) => row.id === this.current)) {
      matching.unshift({ id: this.current, cwd: this.about?.cwd ?? "", name: "New session", modified: new Date().toISOString() });
    }
    const focused = document.activeElement?.dataset?.session;
    const projects = grouped(matching);
    const names = namesOf([...projects.keys()]);
    this.list.replaceChildren(...[...projects].map(([cwd, rows]) => this._project(cwd, names.get(cwd), rows, words !== "" || projects.size === 1)));
    if (!matching.length) this.list.append(element("li", { class: "hint" }, words ? "No session contains these words" : "No sessions yet"));
    if (focused) this.list.querySelector(`[data-session="${CSS.escape(focused)}"]`)?.focus();
  }

  // A folder with its sessions, newest first: some of them, or all.
  _project(cwd, name, rows, whole) {
    const all = whole || this.unfolded.has(cwd) || rows.length <= MOST_OF_PROJECT + 1;
    const shown = rows.filter((row, at) => all || at < MOST_OF_PROJECT || row.id === this.current || row.running || row.questions);
    const more = rows.length - shown.length;
    const label = element("h2", { title: named(cwd) }, name || "New");
    const add = cwd ? element("button", { type: "button", class: "quiet talk-only", title: `New session in ${named(cwd)}`, "aria-label": `New session in ${name}`, onclick: () => this._start(cwd) }, "+") : null;
    const rest = more ? element("button", { type: "button", class: "quiet link", onclick: () => { this.unfolded.add(cwd); this._show(); this.list.querySelector(`[data-session="${CSS.escape(rows[MOST_OF_PROJECT].id)}"]`)?.focus(); } }, `${more} more`) : null;
    return element("li", { class: "project" }, element("div", { class: "group" }, label, add), element("ul", { "aria-label": name || "New" }, ...shown.map((row) => this._row(row)), rest && element("li", {}, rest)));
  }

  _row(row) {
    const title = titleOf(row);
    const state = row.questions ? ["asks", "asks you something"] : row.running ? ["works", "is working"] : null;
    return element("li", {}, element("a", {
      href: `/?session=${encodeURIComponent(row.id)}`, data: { session: row.id }, "aria-current": row.id === this.current ? "page" : null, title: `${title}\n${named(row.cwd)}`,
      onclick: (event) => { if (event.ctrlKey || event.metaKey || event.shiftKey) return; event.preventDefault(); this.open(row.id); },
    },
      element("span", { class: "name" }, title),
      element("span", { class: "where" }, state ? element("span", { class: `dot ${state[0]}`, role: "img", "aria-label": state[1] }) : null, dayOf(row.modified))));
  }

  // The newest ones, for a screen without a session.
  recent() {
    return this.rows.slice(0, 5).map((row) => element("li", {}, element("a", {
      href: `/?session=${encodeURIComponent(row.id)}`, onclick: (event) => { event.preventDefault(); this.open(row.id); },
    }, element("span", { class: "name" }, titleOf(row)), element("span", { class: "note" }, about(row)))));
  }

  _key(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    const links = [...this.list.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    if (at < 0) this.filter.focus(); else links[Math.min(at, links.length - 1)]?.focus();
  }

  // --- a new one ---

  async chooseFolder() {
    const recent = [...new Set(this.rows.map((row) => row.cwd))].slice(0, 6);
    const path = element("input", { type: "text", id: "folder-path", "aria-label": "Folder", autocomplete: "off", spellcheck: false, placeholder: "/path/of/a/folder" });
    const list = element("ul", { class: "folders", "aria-label": "Folders below" });
    const problem = element("p", { class: "bad", role: "alert" });
    const start = element("button", { type: "submit", class: "first" }, "Start here");
    const form = element("form", { class: "chooser" },
      element("label", { for: "folder-path" }, "Folder to work in"), path, problem, list,
      recent.length ? element("div", { class: "recent" }, element("h3", {}, "Recent"), ...recent.map((cwd) => element("button", { type: "button", class: "quiet", title: named(cwd), onclick: () => this._start(cwd, opened, problem) }, named(cwd)))) : null,
      element("footer", {}, start));
    const opened = openWindow("New session", form);
    const look = async (asked, quiet = false) => {
      try {
        const answer = await request(`/api/folders${asked ? `?path=${encodeURIComponent(asked)}` : ""}`);
        if (answer.path) path.value = answer.path;
        problem.textContent = "";
        this._showFolders(list, answer, look);
      } catch (error) { if (!quiet) problem.textContent = error.message; }
    };
    let timer;
    path.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => look(path.value.replace(/(.)\/$/, "$1"), true), 400); });
    form.addEventListener("submit", (event) => { event.preventDefault(); this._start(path.value, opened, problem); });
    await look("");
    if (!path.value && recent[0]) await look(recent[0], true);
    path.focus();
  }

  _showFolders(list, answer, look) {
    const below = answer.path ? answer.path.replace(/\/$/, "") : "";
    const up = below.split("/").slice(0, -1).join("/");
    const row = (label, path) => element("li", {}, element("button", { type: "button", class: "quiet", onclick: async () => { await look(path); list.querySelector("button")?.focus(); } }, named(label)));
    const names = answer.folders ?? [];
    list.replaceChildren(...(up && answer.parent !== null ? [row("↑ one up", up)] : []), ...names.map((name) => row(name.startsWith("/") ? name : `${name}/`, name.startsWith("/") ? name : `${below}/${name}`)));
    if (!names.length) list.append(element("li", { class: "hint" }, "No folders below"));
  }

  // From the window in which a folder is chosen, or without one.
  async _start(cwd, opened = null, problem = null) {
    try {
      const made = await request("/api/sessions", { method: "POST", body: { cwd, plans: true, agents: true } });
      opened?.close();
      this.about = { cwd };
      await this.open(made.id);
    } catch (error) {
      if (problem) problem.textContent = error.message;
      if (!problem?.isConnected) notice(error.message, { kind: "error" });
    }
  }
}

const titleOf = (row) => ordered(row.name || row.firstMessage || "New session");
const about = (row) => [named(baseName(row.cwd)), timeAgo(row.modified)].filter(Boolean).join(" · ");

// When it was last used: today by the time that has passed, else by the day. What the server has not written yet is new.
function dayOf(iso) {
  const then = new Date(iso ?? Date.now());
  if (Number.isNaN(then.getTime())) return "now";
  const midnight = new Date();
  midnight.setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - then) / 86400000);
  if (days <= 0) return timeAgo(then.toISOString());
  return days === 1 ? "yesterday" : days < 7 ? then.toLocaleDateString(undefined, { weekday: "long" }) : then.toLocaleDateString(undefined, { day: "numeric", month: "short", year: then.getFullYear() === midnight.getFullYear() ? undefined : "numeric" });
}

function grouped(rows) {
  const found = new Map();
  for (const row of rows) found.set(row.cwd, [...(found.get(row.cwd) ?? []), row]);
  return found;
}

// What folders are called: by their last name, and where several have the same, with as much of their path as tells them apart.
function namesOf(folders) {
  const tail = (cwd, length) => cwd.split("/").filter(Boolean).slice(-length).join("/") || cwd;
  return new Map(folders.map((cwd) => {
    let length = 1;
    while (length < 12 && folders.some((other) => other !== cwd && tail(other, length) === tail(cwd, length))) length += 1;
    return [cwd, named(tail(cwd, length))];
  }));
}
