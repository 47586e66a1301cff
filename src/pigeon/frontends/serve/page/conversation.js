// One conversation on the page: a window of its entries, and behind it what is under way.
//
// Entries are HTML from the agent (`get_html`). Only some of them are on the page: more come when one scrolls to an end, and
// those at the other end are removed. What is under way is drawn from events (live.js) and gives way to the
// entries when they are on record, so that every reader sees the same in the end, whatever came when.

import { byId, copyText, element, has, named, notice, now, removeNotice, request, say, spanOf } from "./dom.js";
import { rendered, shorten } from "./rendered.js";
import { Connection } from "./connection.js";
import { Frames, LiveAnswer, RunningCalls } from "./live.js";

const FIRST = 30;
const MORE = 40;
const MOST_PIECES = 160;
const NEAR = 60;
const LONG_PIECE = 20000;
// After so many milliseconds it is said how long something takes.
const LONG = 3000;
const MOST_CHANGES = 50;
const DOING = { text: "Writing", thinking: "Thinking", toolcall: "Writing a tool call" };
const ENDS = { aborted: "Stopped.", error: "Ended with an error.", limit: "Ended: a limit was reached.", denied: "Ended: permission was denied." };

function wrap(button) {
  if (button) button.setAttribute("aria-pressed", String(button.closest(".copyable").classList.toggle("wrapped")));
}

export class Conversation {
  // `on` has changed(what) when something of `state`, `stats`, `queue`, `changes` or `running` has, question(record),
  // answered(id), refused(error), editor(text), work(record) of agents and of what runs in the background, or null for what there was before.
  constructor(id, on) {
    this.id = id;
    this.on = on;
    this.state = {};
    this.stats = null;
    this.queue = [];
    this.changes = { files: [] };
    this.running = false;
    this.doing = { text: "", since: 0 };
    this.waits = false;       // for an answer of the reader
    this.toolsRan = false;    // in this run
    this.failure = "";        // what the last answer has ended with
    this.page = null;         // the last answer of get_html that reaches the end, and where the window begins
    this.atEnd = true;
    this.stuck = true;        // the reader is at the bottom and stays there
    this.scroll = byId("scroll");
    this.entries = byId("entries");
    this.place = byId("live");
    this.frames = new Frames(() => this.follow());
    this.calls = new RunningCalls(this.frames, (call) => this._card(call));
    this.answers = [];
    this.unfolded = new Map();
    this.refreshing = null;
    this.again = false;
    this.ask = (type, members) => this.connection.ask(type, members);
    this.connection = new Connection(id, {
      event: (record) => this._event(record),
      state: (name, detail) => this.on.connection(name, detail),
      back: () => this._back(),
      refused: (error) => this.on.refused(error),
    });
    this.scrolled = () => this._scrolled();
    this.toggled = (event) => { if (event.target.dataset?.call && this.byHand) this.unfolded.set(event.target.dataset.call, event.target.open); };
    this.clicked = (event) => { this.byHand = event.target.closest("summary") !== null; this._copy(event.target.closest("button.copy")); wrap(event.target.closest("button.wrap")); };
    this.ticking = setInterval(() => { this._showStatus(); this.calls.tick(); this._showBackground(); }, 1000);
    this.scroll.addEventListener("scroll", this.scrolled, { passive: true });
    this.scroll.addEventListener("toggle", this.toggled, true);
    this.scroll.addEventListener("click", this.clicked, true);
  }

  async open() {
    this.scroll.setAttribute("aria-busy", "true");
    const info = await request(`/api/sessions/${encodeURIComponent(this.id)}`);
    this.folder = info.cwd;
    this.asked = { ago: info.askedAgo ?? {}, at: now() };
    this.queue = info.queue;
    this.on.changed("queue");
    const awake = info.state === "awake";
    this.connection.open(info.openSeq ?? (awake ? info.seq : null));
    await Promise.all([this._load(), this.refreshState(), this.refreshStats()]);
    this.refreshChanges().catch(() => {});
    this.on.work(null);
    if (!awake && this.state.isStreaming) await this._seeOpenWork();
  }

  // It was asleep when we asked, and has begun something before we were there: begin again where that begins.
  async _seeOpenWork() {
    const info = await request(`/api/sessions/${encodeURIComponent(this.id)}`);
    if (info.openSeq === null || info.openSeq === undefined) return;
    this._clearLive();
    this.connection.last = info.openSeq;
    this.connection.socket?.close();
  }

  // For how many milliseconds a question has been open that was there before this page was.
  askedAgo(id) {
    return has(this.asked.ago, id) ? this.asked.ago[id] * 1000 + now() - this.asked.at : 0;
  }

  close() {
    this.connection.close();
    clearInterval(this.ticking);
    this._say("");
    byId("background").hidden = true;
    this.scroll.removeEventListener("scroll", this.scrolled);
    this.scroll.removeEventListener("toggle", this.toggled, true);
    this.scroll.removeEventListener("click", this.clicked, true);
    this._clearLive();
    this.entries.replaceChildren();
    byId("changes").hidden = true;
  }

  // --- entries ---

  async _load(around = null) {
    const page = await this.ask("get_html", around === null ? { limit: FIRST } : { around, limit: MORE });
    this.entries.replaceChildren(...this._pieces(page));
    this.page = page;
    this._setEnd(!page.moreAfter);
    this.calls.attachAll();
    byId("earlier").hidden = !page.moreBefore;
    this._showChanges();
    this.on.changed("entries");
    if (around === null) this.toNewest(false);
    this.scroll.removeAttribute("aria-busy");
    if (this.answers.some((answer) => answer.done)) this.refresh();
  }

  async refreshState() {
    this.state = await this.ask("get_state");
    this.running = this.state.isStreaming;
    this.on.changed("state");
  }

  async refreshStats() {
    this.stats = await this.ask("get_session_stats");
    this.on.changed("stats");
  }

  // The files that tools have changed; the agent looks through all of the session for them.
  async refreshChanges() {
    this.changes = await this.ask("get_changes");
    this.on.changed("changes");
  }

  // Put on the page what has come on record, in the place of what was drawn live. One request at a time.
  refresh() {
    if (this.refreshing) { this.again = true; return this.refreshing; }
    this.refreshing = this._refresh().catch(() => {}).finally(() => {
      this.refreshing = null;
      if (this.again) { this.again = false; this.refresh(); }
    });
    return this.refreshing;
  }

  async _refresh() {
    if (!this.page || this.connection.closed) return;
    if (!this.atEnd) { byId("newest").hidden = false; return; }
    const finished = this.answers.filter((answer) => answer.done);
    let page;
    try {
      page = await this.ask("get_html", this.page.settledId === null ? { limit: FIRST } : { after: this.page.settledId, limit: 200 });
    } catch {
      return this._reload();  // another branch, or another session: its entries are not ours
    }
    if (!this.atEnd) return;
    for (const piece of [...this.entries.children]) if (this.page.settledId === null || piece.dataset.open) piece.remove();
    this.entries.append(...this._pieces(page));
    for (const answer of finished) { answer.stop?.(); answer.element.remove(); }
    this.answers = this.answers.filter((answer) => !finished.includes(answer));
    this.page = { ...page, firstId: this.page.firstId ?? page.firstId, moreBefore: this.page.moreBefore, pieces: null };
    for (const id of this.calls.running.keys()) {
      const loose = [...this.place.querySelectorAll("[data-call]")].find((card) => card.dataset.call === id && !card.closest("article.live"));
      if (loose && this._inEntries(id)) loose.remove();
    }
    this.calls.attachAll();
    if (this.stuck) this._trimTop();
    this.follow();
    this.frames.ask({ paint() {} });
    this._showChanges();
    this.on.changed("entries");
    if (page.moreAfter) this.again = true;
  }

  async _reload() {
    this._clearLive(true);
    await this._load();
    await this.refreshState();
    this.refreshChanges().catch(() => {});
  }

  _pieces(page) {
    return page.pieces.map(({ entryId, html, settled }) => {
      // Of a long piece only what can be seen is laid out, so that an answer is on record without a jerk.
      const piece = element("div", { class: html.length > LONG_PIECE ? "piece long" : "piece", data: { entry: entryId } }, rendered(html));
      if (!settled) piece.dataset.open = "1";
      if (piece.querySelector(":scope > article")) piece.classList.add("talk");
      for (const card of piece.querySelectorAll("[data-call]")) {
        if (this.unfolded.has(card.dataset.call)) card.open = this.unfolded.get(card.dataset.call);
      }
      // What scrolls can be reached; beside a file, its numbers and its lines scroll as one.
      for (const long of piece.querySelectorAll("pre:not(.code pre), .code, .diff, table")) long.tabIndex = 0;
      for (const code of piece.querySelectorAll("pre:not(.code pre):not(.text), .code")) {
        // Files keep their lines, as their numbers do; all else is wrapped unless it is told not to be.
        const wrapped = !code.matches(".code");
        const around = element("div", { class: wrapped ? "copyable wrapped" : "copyable" });
        code.replaceWith(around);
        around.append(code, element("div", { class: "on-code" },
          element("span", { class: "note" }, code.querySelector("code")?.dataset.language ?? ""),
          element("button", { class: "quiet wrap", type: "button", "aria-pressed": String(wrapped), "aria-label": "Wrap long lines" }, "Wrap"),
          element("button", { class: "quiet copy", type: "button", "aria-label": "Copy this text" }, "Copy")));
      }
      const answer = piece.querySelector(":scope > article.assistant:not(.work) > header");
      if (answer) answer.append(element("button", { class: "quiet copy", type: "button", title: "Copy this answer" }, "Copy"));
      const said = piece.querySelector(":scope > article.user > header");
      if (said) said.append(element("button", { class: "quiet back", type: "button", title: "Go back to before this message and edit it", data: { entry: entryId } }, "Edit"));
      return piece;
    });
  }

  async _copy(button) {
    if (!button) return;
    const code = button.closest(".copyable")?.querySelector(":scope > .code > pre:last-child, :scope > pre");
    const done = await copyText(code ? code.textContent.replace(/\n$/, "") : await this._written(button.closest(".piece").dataset.entry, button.closest("article")));
    button.textContent = done ? "Copied" : "Not copied";
    say(button.textContent);
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // An answer as the model has written it, in markdown; without a connection as it is shown.
  async _written(entry, article) {
    try {
      const { pieces } = await this.ask("get_html", { around: entry, limit: 1, source: true });
      const { markdown } = pieces.find((piece) => piece.entryId === entry);
      if (markdown) return markdown;
    } catch { /* as it is shown */ }
    // What stands in a block of code is copied without the buttons in it.
    return [...article.querySelectorAll(":scope > .body > :not(details)")].map((one) => (one.matches(".copyable") ? one.querySelector("pre").textContent : one.innerText)).join("\n\n");
  }

  // Below the last answer: the files that were changed since the last message, each with the way to its first change.
  _showChanges() {
    const place = byId("changes");
    const files = new Map();
    const pieces = this.running || !this.atEnd ? [] : [...this.entries.children];
    for (const piece of pieces.slice(pieces.findLastIndex((one) => one.querySelector(":scope > article.user")) + 1)) {
      for (const card of piece.querySelectorAll(".card.changing[data-call]")) {
        const head = card.firstElementChild;
        const path = head.querySelector("code")?.textContent;
        if (!path || head.querySelector(".bad, .none")) continue;
        const file = files.get(path) ?? files.set(path, { card, added: 0, removed: 0, written: false }).get(path);
        const count = (kind) => Number(head.querySelector(`.${kind}`)?.textContent.replace(/\D/g, "") ?? 0);
        file.added += count("added");
        file.removed += count("removed");
        file.written ||= !head.querySelector(".added");
      }
    }
    place.hidden = files.size === 0;
    const rows = [...files].slice(0, MOST_CHANGES).map(([path, { card, added, removed, written }]) => element("li", {},
      element("button", { type: "button", class: "quiet", onclick: () => { card.open = true; this.stuck = false; card.scrollIntoView({ block: "start" }); card.firstElementChild.focus(); } },
        element("code", {}, path), " ", written ? element("span", { class: "note" }, "written") : null,
        added ? element("span", { class: "added" }, ` +${added}`) : null, removed ? element("span", { class: "removed" }, ` -${removed}`) : null)));
    const more = files.size > rows.length ? element("li", { class: "hint" }, `and ${files.size - rows.length} more`) : null;
    place.replaceChildren(element("h2", {}, files.size === 1 ? "1 file changed" : `${files.size} files changed`), element("ul", {}, ...rows, more),
      element("button", { type: "button", class: "quiet link review-all" }, "Review all changes of this session"));
    this.follow();
  }

  _trimTop() {
    let removed = false;
    while (this.entries.children.length > MOST_PIECES) { this.entries.firstChild.remove(); removed = true; }
    if (!removed) return;
    this.page.firstId = this.entries.firstChild.dataset.entry;
    this.page.moreBefore = true;
    byId("earlier").hidden = false;
  }

  async _earlier() {
    if (this.loading || !this.page?.moreBefore) return;
    this.loading = true;
    try {
      const page = await this.ask("get_html", { before: this.page.firstId, limit: MORE });
      const from = this.scroll.scrollHeight - this.scroll.scrollTop;
      this.entries.prepend(...this._pieces(page));
      this.page.firstId = page.firstId ?? this.page.firstId;
      this.page.moreBefore = page.moreBefore;
      byId("earlier").hidden = !page.moreBefore;
      let cut = false;
      this.scroll.scrollTop = this.scroll.scrollHeight - from;
      while (this.entries.children.length > MOST_PIECES) { this.entries.lastChild.remove(); cut = true; }
      if (cut) this._setEnd(false);
    } finally { this.loading = false; }
  }

  async _later() {
    if (this.loading || this.atEnd || !this.entries.lastChild) return;
    this.loading = true;
    try {
      const page = await this.ask("get_html", { after: this.entries.lastChild.dataset.entry, limit: MORE });
      this.entries.append(...this._pieces(page));
      const from = this.scroll.scrollHeight - this.scroll.scrollTop;
      let cut = false;
      while (this.entries.children.length > MOST_PIECES) { this.entries.firstChild.remove(); cut = true; }
      if (cut) {
        this.page.firstId = this.entries.firstChild.dataset.entry;
        this.page.moreBefore = true;
        this.scroll.scrollTop = this.scroll.scrollHeight - from;
      }
      if (!page.moreAfter) {
        this._setEnd(true);
        this.page = { ...page, firstId: this.page.firstId, moreBefore: this.page.moreBefore };
        this.calls.attachAll();
      }
    } finally { this.loading = false; }
  }

  _setEnd(atEnd) {
    this.atEnd = atEnd;
    this.place.hidden = !atEnd;
    byId("newest").hidden = atEnd && this.stuck;
  }

  // Show an entry, wherever it is, and mark it.
  async show(entryId) {
    let piece = this._piece(entryId);
    if (!piece) {
      await this._load(entryId);
      piece = this._piece(entryId);
    }
    this.stuck = false;
    for (const old of this.entries.querySelectorAll(".found")) old.classList.remove("found");
    if (!piece) return null;
    piece.classList.add("found");
    piece.scrollIntoView({ block: "center" });
    return piece;
  }

  async toNewest(load = true) {
    if (load && !this.atEnd) await this._load();
    this.stuck = true;
    this.follow();
    byId("newest").hidden = true;
  }

  follow() {
    if (this.stuck && this.atEnd) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  _scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const below = scrollHeight - scrollTop - clientHeight;
    this.stuck = this.atEnd && below < NEAR;
    byId("newest").hidden = this.stuck;
    if (scrollTop < 600) this._earlier();
    if (below < 600) this._later();
  }

  _piece(entryId) {
    return this.entries.querySelector(`[data-entry="${CSS.escape(entryId)}"]`);
  }

  _inEntries(call) {
    return [...this.entries.querySelectorAll("[data-open] [data-call]")].find((card) => card.dataset.call === call) ?? null;
  }

  // Ids of calls may come again, so the newest card counts.
  _card(call) {
    const cards = [...this.place.querySelectorAll("[data-call]")].filter((card) => card.dataset.call === call);
    return this._inEntries(call) ?? cards.pop() ?? null;
  }

  // --- what is under way ---

  _clearLive(all = false) {
    for (const answer of this.answers) answer.stop?.();
    this.answers = [];
    this.place.replaceChildren();
    this.calls.clear();
    if (all) this._say("");
  }

  _say(text) {
    if (text === this.doing.text) return;
    this.doing = { text, since: now() };
    this._showStatus();
  }

  _showStatus() {
    const { text, since } = this.doing;
    const long = now() - since > LONG ? ` · ${spanOf(now() - since)}` : "";
    const shown = this.waits ? "Waiting for your answer" : text && text + long;
    if (byId("status").textContent === shown) return;
    byId("status").replaceChildren(...(shown ? [element("span", { class: "working" }, shown)] : []));
  }

  // The command that the model waits for since a while, and that could go on in the background.
  get longCommand() {
    const long = [...this.calls.running].filter(([, call]) => call.command && !call.asked && now() - call.since > LONG);
    return long.at(-1)?.[0] ?? null;
  }

  _showBackground() {
    byId("background").hidden = this.longCommand === null;
  }

  async sendToBackground() {
    const call = this.longCommand;
    if (call === null) return;
    try { await this.ask("background_tool", { toolCallId: call }); say("The command goes on in the background."); } catch (error) { notice(error.message, { kind: "error", key: "background" }); }
    this._showBackground();
  }

  // Whether the agent waits for an answer of the reader.
  asks(waits) {
    this.waits = waits;
    this._showStatus();
  }

  async _back() {
    removeNotice("connection");
    await Promise.all([this.refreshState(), this.refresh(), this.refreshStats()]).catch(() => {});
    if (!this.running) { this._finishAll(); this._say(""); }
  }

  _event(record) {
    // What an agent does that was started here is asked for when the reader wants to see it.
    if (record.agentId && record.type !== "extension_ui_request") return;
    switch (record.type) {
      case "message_update": return this._delta(record.assistantMessageEvent);
      case "message_start": return this._messageStart(record.message);
      case "message_end": return this._messageEnd(record.message);
      case "tool_execution_start": return this._toolStart(record);
      case "tool_execution_update": return this.calls.update(record.toolCallId, record.partialResult);
      case "tool_execution_end": this.calls.end(record.toolCallId, record.isError); this._showBackground(); if (record.result?.details?.decision) this.on.changed("mode"); return this.refresh();
      case "agent_start": this._setRunning(true); return this._say("Working");
      case "turn_start": return this._say("Waiting for the model");
      case "turn_end": return this.refresh();
      case "agent_settled": return this._settled(record);
      case "agent_changed": case "job_changed": return this.on.work(record);
      case "queue_update": this.queue = record.items ?? []; return this.on.changed("queue");
      case "compaction_start": return this._say("Making room in the context: a summary is being written");
      case "compaction_end": return this._compacted(record);
      case "auto_retry_start": return this._say(`The model's server failed: ${record.explanation ?? record.errorMessage}. Trying again, ${record.attempt} of ${record.maxAttempts}`);
      case "session_info_changed": this.state.sessionName = record.name; return this.on.changed("state");
      case "selection_changed": return this._selected(record);
      case "thinking_level_changed": this.state.thinkingLevel = record.level; return this.on.changed("state");
      case "entry_appended": this.refresh(); return void this.refreshState().catch(() => {});
      case "extension_ui_request": return this.on.question(record);
      case "permission_resolved": return this.on.answered(record.id, record.outcome);
      case "extension_error": return void notice(`An extension failed: ${record.error}`, { kind: "warning" });
      case "trust_required": return void notice(`This folder has settings that are not used until you trust it: ${record.waiting.join(", ")}`, { kind: "warning", key: "trust" });
      case "agent_restarted": return this._restarted(record);
      case "gap": return this._gap();
    }
  }

  _delta(event) {
    const kind = event.type.split("_")[0];
    if (has(DOING, kind)) this._say(DOING[kind]);
    this._answer()?.take(event);
  }

  _setRunning(running) {
    this.running = running;
    if (running) byId("changes").hidden = true;
    this.on.changed("running");
  }

  _answer() {
    const last = this.answers.at(-1);
    if (last && !last.done && last.take) return last;
    return this._begin(new LiveAnswer(this.frames, this.ask, this.calls));
  }

  _begin(answer) {
    this.answers.push(answer);
    this.place.append(answer.element);
    return answer;
  }

  _messageStart(message) {
    if (message.role === "assistant") this._begin(new LiveAnswer(this.frames, this.ask, this.calls));
    else if (message.role === "user") {
      const text = typeof message.content === "string" ? message.content : message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
      const body = element("div", { class: "body lines", dir: "auto" }, text);
      shorten(body);
      this._begin({ done: false, element: element("article", { class: "user live" }, body) });
      this.toNewest();
    }
    this.frames.ask({ paint() {} });
  }

  _messageEnd(message) {
    const last = this.answers.at(-1);
    if (last && message.role !== "toolResult") last.done = true;
    if (message.role === "assistant") {
      this.failure = message.errorMessage ?? "";
      this._say(message.content.some((block) => block.type === "toolCall") ? "Running tools" : "");
    }
    return this.refresh();
  }

  _toolStart(record) {
    this.toolsRan = true;
    const found = this.calls.start(record.toolCallId, record.toolName, typeof record.args?.command === "string");
    if (!found && this.atEnd) this.refresh();
    this._say(`Running ${named(record.toolName)}`);
  }

  _finishAll() {
    for (const answer of this.answers) answer.done = true;
    if (this.answers.length) this.refresh();
  }

  _settled(record) {
    this._setRunning(false);
    this.calls.clear();
    this._showBackground();
    this._finishAll();
    this._say("");
    const how = has(ENDS, record.reason) ? ENDS[record.reason] : null;
    say(how ?? "The answer is complete.");
    this.on.ended(how);
    // An error of the model's server stands in the conversation.
    if (how && record.reason !== "aborted" && !(record.reason === "error" && this.failure)) notice(record.errorMessage ? `${how} ${record.errorMessage}` : how, { kind: record.reason === "error" ? "error" : "warning", key: "ended" });
    this.refresh();
    this.refreshState().catch(() => {});
    this.refreshStats().catch(() => {});
    if (this.toolsRan) this.refreshChanges().catch(() => {});
    this.toolsRan = false;
  }

  // This page or another client has chosen a model, or gone to another branch.
  _selected(record) {
    this.state.model = record.model;
    this.on.changed("state");
    if (record.by === "navigate_tree") this._reload().catch(() => {});
    else this.refresh();
  }

  _compacted(record) {
    this._say("");
    if (record.errorMessage) notice(`The context could not be compacted: ${record.explanation ?? record.errorMessage}`, { kind: "warning", key: "compaction" });
    this.explained = record.explanation ? record.errorMessage : null;
    this.refresh();
    this.refreshStats().catch(() => {});
  }

  _restarted(record) {
    this._clearLive(true);
    notice(`The agent was restarted: ${record.reason}. The conversation is intact; what was in progress has ended.`, { kind: "warning", key: "restarted" });
    say("The agent was restarted.", true);
    this._reload().catch(() => {});
  }

  _gap() {
    notice("More has happened than is kept for reconnecting. The conversation was reloaded.", { key: "gap", lasts: 8000 });
    this._reload().catch(() => {});
  }
}
