// The message box: what is sent and how, images, commands, the messages that wait, the model and how much it thinks.

import { byId, element, has, keep, kept, named, notice, openWindow, say, typing } from "./dom.js";
import { explainNoModel, pick } from "./panels.js";

const MOST_IMAGE = 10 * 1024 * 1024;
const KINDS = ["image/png", "image/jpeg", "image/gif", "image/webp"];
// Approval modes, the strictest first.
const MODES = { plan: "plan first", "always-ask": "ask: changes", write: "ask: commands", yolo: "ask: by rules" };
const MOST_SHOWN = 8;
const PLACEHOLDER = byId("message").placeholder;
const LONG_TEXT = 20_000;
// What was typed and not sent outlives a reload of its tab, and ends with the tab.
const DRAFT = "pigeon-draft-";
// `@` and what was typed of a file's name up to the cursor; a name with spaces stands in quotes.
const AT_WORD = /(^|\s)@("[^"\n]*|[^\s"]*)$/;

export class Composer {
  // `own` are the commands of this page: name -> { about, run(rest) }; `questions()` gives the open questions.
  constructor(own, questions) {
    this.own = own;
    this.questions = questions;
    this.conversation = null;
    this.commands = [];
    this.pictures = [];
    this.earlier = null;      // messages of this session, for ArrowUp, and which of them is shown
    this.chosen = 0;
    this.box = byId("message");
    this.list = byId("completions");
    byId("composer").addEventListener("submit", (event) => { event.preventDefault(); this.send("steer"); });
    byId("queue-up").addEventListener("click", () => this.send("followUp"));
    byId("stop").addEventListener("click", () => this.stop());
    this.box.addEventListener("input", () => { this.earlier = null; this._grow(); this._complete(); this._keepSoon(); this._showSend(); });
    addEventListener("pagehide", () => this._keep());
    this.box.addEventListener("keydown", (event) => this._key(event));
    this.box.addEventListener("blur", () => setTimeout(() => this._hideCompletions(), 150));
    this.box.addEventListener("paste", (event) => this._files(event.clipboardData?.files, event));
    byId("attach").addEventListener("click", () => byId("files").click());
    byId("files").addEventListener("change", (event) => { this._files(event.target.files); event.target.value = ""; });
    addEventListener("dragover", (event) => { if (event.dataTransfer?.types.includes("Files")) { event.preventDefault(); document.body.classList.add("dropping"); } });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
    addEventListener("drop", (event) => { document.body.classList.remove("dropping"); this._files(event.dataTransfer?.files, event); });
    byId("model").addEventListener("click", () => this.chooseModel());
    byId("approval").addEventListener("change", (event) => this.setMode(event.target.value));
    byId("thinking").addEventListener("change", (event) => this._setLevel(event.target.value));
  }

  // Show another conversation; what was typed for the last one is kept.
  use(conversation) {
    this._keep();
    this.conversation = conversation;
    this._showBox();
    this.setText(conversation ? kept("sessionStorage", DRAFT + conversation.id) : "");
    this.pictures = [];
    this._showPictures();
    this.changed("queue");
    byId("approval").hidden = true;
    if (conversation) this._learn(conversation);
  }

  // Who only reads has no box.
  mayTalk(may) {
    this.silent = !may;
    this._showBox();
  }

  _showBox() {
    byId("composer").hidden = this.conversation === null || Boolean(this.silent);
    byId("watching").hidden = this.conversation === null || !this.silent;
  }

  _keepSoon() {
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => this._keep(), 500);
  }

  _keep() {
    clearTimeout(this.keeping);
    if (this.conversation) keep("sessionStorage", DRAFT + this.conversation.id, this.box.value);
  }

  async _learn(conversation) {
    this.commands = [];
    this.models = null;
    try {
      const [{ commands }, { models }] = await Promise.all([conversation.ask("get_commands"), conversation.ask("get_available_models")]);
      if (conversation !== this.conversation) return;
      this.commands = commands;
      this.models = models;
      this._showModels();
      conversation.on.changed("models");
      await Promise.all([this._learnLevels(), this._learnMode()]);
    } catch { /* the page works without them */ }
  }

  // Only an admin may change it; others see it.
  async _learnMode() {
    const { conversation } = this;
    const permissions = await conversation.ask("get_permissions");
    if (conversation !== this.conversation) return;
    const modes = Object.keys(MODES);
    const place = byId("approval");
    const strictest = Math.min(...[permissions.user, permissions.project].map(({ approvalMode }) => modes.indexOf(approvalMode)));
    place.replaceChildren(...modes.map((mode, at) => element("option", { value: mode, selected: mode === permissions.approvalMode, disabled: at > strictest }, MODES[mode])));
    place.disabled = document.body.dataset.scope !== "admin";
    place.hidden = false;
  }

  async setMode(mode) {
    try { await this.conversation.ask("set_approval_mode", { mode }); } catch (error) { notice(error.message, { kind: "error" }); }
    await this._learnMode().catch(() => {});
  }

  async _learnLevels() {
    const { levels } = await this.conversation.ask("get_available_thinking_levels");
    this.levels = levels;
    this._showLevels();
  }

  changed(what) {
    const { conversation } = this;
    if (!conversation) return;
    byId("stop").hidden = byId("queue-up").hidden = !conversation.running;
    this._showSend();
    if (what === "state") {
      const model = conversation.state.model;
      const key = model ? `${model.provider}/${model.id}` : "";
      if (key !== this.modelKey) { this.modelKey = key; this._showModels(); this._learnLevels().catch(() => {}); }
      else this._showLevels();
    }
    // Another browser may have changed it meanwhile.
    if (what === "running" || what === "mode") this._learnMode().catch(() => {});
    if (what === "stats") this._showSpent(conversation.stats);
    if (what === "queue") this._showQueue(conversation.queue);
  }

  // What Enter does with what is in the box.
  _showSend() {
    const running = this.conversation?.running;
    const replies = this.questions().isReply;
    byId("send").textContent = replies ? "Decline and send" : running ? "Steer" : "Send";
    byId("send").title = replies ? "Decline, and say this instead (Enter)" : running ? "Tell the agent now, at the next break (Enter)" : "Send (Enter)";
    this.box.placeholder = this.questions().canReply ? "Or say what to do instead" : PLACEHOLDER;
  }

  setText(text) {
    this.box.value = text;
    this.earlier = null;
    this.questions().noteText();
    this._showSend();
    this._grow();
    this._hideCompletions();
    this._keep();
  }

  focus() { this.box.focus(); }

  // --- sending ---

  async send(behaviour) {
    const { conversation } = this;
    const text = this.box.value;
    const images = this.pictures.map(({ data, mimeType }) => ({ type: "image", data, mimeType }));
    if (!conversation || (!text.trim() && !images.length)) return;
    const own = /^\/(\S+)\s*(.*)$/s.exec(text.trim());
    if (own && has(this.own, own[1]) && !this.commands.some((command) => command.name === own[1])) {
      this.setText("");
      return void this.own[own[1]].run(own[2]);
    }
    const pictures = this.pictures;
    const answered = behaviour === "steer" && this.questions().isReply ? this.questions().hold() : () => {};
    this.setText("");
    this.pictures = [];
    this._showPictures();
    conversation.toNewest();
    const record = { message: text, clientMessageId: crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint32Array(4))].join("-") };
    if (images.length) record.images = images;
    // Whether a run is active may have changed meanwhile, so what to do in that case is always said.
    record.streamingBehavior = behaviour;
    try {
      const answer = await conversation.ask("prompt", record);
      answered(true);
      if (answer?.disposition === "handled") conversation.refresh();
    } catch (error) {
      answered(false);
      if (has(conversation.state, "thinkingLevel") && !conversation.state.model && !this.models?.length) this.explainNoModel();
      else notice(error.message, { kind: "error", key: "send" });
      if (this.conversation === conversation && !this.box.value) { this.setText(text); this.pictures = pictures; this._showPictures(); }
    }
  }

  // Messages that wait were meant for the work that is stopped: they come back into the box, or they would follow the
  // next message.
  async stop() {
    const conversation = this.conversation;
    if (!conversation?.running) return;
    byId("stop").disabled = true;
    try {
      const waiting = conversation.queue.length ? await conversation.ask("clear_queue") : null;
      if (waiting && this.conversation === conversation) this._addText(...waiting.steering, ...waiting.followUp);
      await conversation.ask("abort");
    } catch (error) { notice(error.message, { kind: "error" }); }
    byId("stop").disabled = false;
    if (!typing()) this.focus();
  }

  _key(event) {
    // 229 is what Safari tells of the Enter that ends a composition.
    if (event.isComposing || event.keyCode === 229) return;
    const open = !this.list.hidden;
    if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      this.chosen = (this.chosen + (event.key === "ArrowDown" ? 1 : -1) + this.list.children.length) % this.list.children.length;
      this._markChosen();
    } else if (open && (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey))) {
      event.preventDefault();
      this.list.children[this.chosen].dispatchEvent(new Event("take"));
    } else if (open && event.key === "Escape") {
      event.stopPropagation();
      this._hideCompletions();
    } else if (event.key === "Enter" && !event.shiftKey) {
      // On a phone the key makes a new line, as in every other program there.
      if (matchMedia("(pointer: coarse)").matches && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.send(event.altKey ? "followUp" : "steer");
    } else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && (this.earlier || !this.box.value)) {
      this._recall(event);
    }
  }

  // In an empty box ArrowUp brings back what was said before, and ArrowDown goes on to what was said later.
  async _recall(event) {
    const back = event.key === "ArrowUp";
    if (!this.earlier && !back) return;
    event.preventDefault();
    if (!this.earlier) {
      try {
        const { messages } = await this.conversation.ask("get_fork_messages");
        if (this.box.value || !messages.length) return;
        this.earlier = { texts: messages.map(({ text }) => text), at: messages.length };
      } catch { return; }
    }
    const { texts } = this.earlier;
    const at = Math.max(0, Math.min(texts.length, this.earlier.at + (back ? -1 : 1)));
    this.setText(texts[at] ?? "");
    if (at < texts.length) this.earlier = { texts, at };
  }

  _grow() {
    // A long text is not measured, which would take long at every key.
    const long = this.box.value.length > LONG_TEXT;
    if (!long) this.box.style.height = "auto";
    this.box.style.height = `${long ? innerHeight * 0.4 : Math.min(this.box.scrollHeight + 2, innerHeight * 0.4)}px`;
  }

  // --- commands ---

  _complete() {
    const typed = /^\/(\S*)$/.exec(this.box.value)?.[1];
    this.wanted = null;
    if (typed === undefined) return this._completeFile();
    const known = [...this.commands.map(({ name, description }) => ({ name, about: description ?? "" })),
      ...Object.entries(this.own).map(([name, { about }]) => ({ name, about }))];
    const matching = known.filter(({ name }) => name.toLowerCase().includes(typed.toLowerCase()))
      .sort((one, other) => one.name.indexOf(typed) - other.name.indexOf(typed)).slice(0, MOST_SHOWN);
    this._offer(matching.map(({ name, about }) => ({ shown: [element("b", {}, `/${name}`), " ", element("span", { class: "note" }, about)], take: () => this._take(name) })), "command");
  }

  // Files of the folder in which the agent works; the agent knows which.
  async _completeFile() {
    const before = this.box.value.slice(0, this.box.selectionStart);
    const typed = this.box.value.length < LONG_TEXT ? AT_WORD.exec(before)?.[2] : undefined;
    if (typed === undefined) return this._hideCompletions();
    const wanted = this.wanted = {};
    let paths = [];
    try { ({ paths } = await this.conversation.ask("find_files", { text: typed.replace(/^"/, ""), limit: MOST_SHOWN })); } catch { /* none are offered */ }
    if (this.wanted !== wanted) return;
    this._offer(paths.map((path) => ({ shown: [element("span", { class: "path", dir: "ltr" }, named(path))], take: () => this._takeFile(typed, path) })), "file");
  }

  // `offers` are { shown, take() }.
  _offer(offers, what) {
    this.list.replaceChildren(...offers.map(({ shown, take }, at) => element("li", {
      id: `completion-${at}`, role: "option", ontake: take, onmousedown: (event) => { event.preventDefault(); take(); },
    }, ...shown)));
    this.list.hidden = offers.length === 0;
    this.chosen = 0;
    this._markChosen();
    if (offers.length) say(offers.length === 1 ? `1 ${what}` : `${offers.length} ${what}s`);
  }

  _takeFile(typed, path) {
    const at = this.box.selectionStart;
    const folder = path.endsWith("/");
    const text = /\s/.test(path) ? `"${path}"` : path;
    this.box.setRangeText(folder ? text : `${text} `, at - typed.length, at, "end");
    this._grow();
    this._keepSoon();
    if (folder) this._complete(); else this._hideCompletions();
    this.focus();
  }

  _markChosen() {
    [...this.list.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === this.chosen)));
    if (!this.list.hidden) this.box.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
  }

  _take(name) {
    this.setText(`/${name} `);
    this.focus();
  }

  _hideCompletions() {
    this.wanted = null;
    this.list.hidden = true;
    this.box.removeAttribute("aria-activedescendant");
  }

  // --- images ---

  async _files(files, event) {
    const given = [...(files ?? [])];
    if (!given.length) return;
    // Without this a browser leaves the page and shows the file that was dropped.
    if (event?.type === "drop") event.preventDefault();
    const images = given.filter((file) => KINDS.includes(file.type));
    const { conversation } = this;
    if (!conversation || this.silent) return;
    if (images.length < given.length && event?.type !== "paste") notice("Only images (PNG, JPEG, GIF, WebP) can be attached. Name other files in the message: @ completes their names", { kind: "warning", key: "files", lasts: 8000 });
    if (!images.length) return;
    event?.preventDefault();
    for (const file of images) {
      if (file.size > MOST_IMAGE) { notice(`${file.name || "The image"} has more than 10 MB`, { kind: "warning" }); continue; }
      const url = await new Promise((done) => { const reader = new FileReader(); reader.onload = () => done(reader.result); reader.readAsDataURL(file); });
      this.pictures.push({ name: file.name || "image", url, data: url.slice(url.indexOf(",") + 1), mimeType: file.type });
    }
    this._showPictures();
    say(`${this.pictures.length} images attached`);
  }

  _showPictures() {
    byId("pictures").hidden = this.pictures.length === 0;
    byId("pictures").replaceChildren(...this.pictures.map((picture) => element("figure", {},
      element("img", { src: picture.url, alt: picture.name }),
      element("button", { type: "button", class: "quiet", "aria-label": `Remove ${picture.name}`, onclick: () => {
        this.pictures = this.pictures.filter((one) => one !== picture);
        this._showPictures();
        this.focus();
      } }, "✕"))));
  }

  // --- the model ---

  // Nothing is said of the model before the agent has answered.
  _showModels() {
    const state = this.conversation?.state ?? {};
    const name = state.model ? state.model.name || state.model.id : has(state, "thinkingLevel") ? "Choose a model" : "\u2026";
    byId("model").textContent = name;
    byId("model").setAttribute("aria-label", `Model: ${name}`);
  }

  // Whether no model can be chosen, because no provider has a key.
  get lacksModel() {
    const state = this.conversation?.state ?? {};
    return has(state, "thinkingLevel") && !state.model && this.models?.length === 0;
  }

  async tryDemo() {
    await this._setModel("demo/guide");
    notice("The demo model understands a few plain sentences. Try \u201clist the files\u201d.", { key: "demo", lasts: 12000 });
    this.focus();
  }

  explainNoModel() {
    const opened = openWindow("No model yet", explainNoModel(() => { opened.close(); this.tryDemo(); }));
  }

  async chooseModel() {
    const { conversation } = this;
    if (!conversation || this.silent) return;
    if (this.lacksModel) return this.explainNoModel();
    const { model } = conversation.state;
    const current = model ? `${model.provider}/${model.id}` : "";
    const known = [...(this.models ?? [])];
    if (model && !known.some(({ provider, id }) => `${provider}/${id}` === current)) known.unshift(model);
    const order = [...new Set(known.map(({ provider }) => provider))];
    const rows = known.map(({ provider, id, name, contextWindow }) => ({
      key: `${provider}/${id}`, group: provider, name: name || id, about: contextWindow ? `${Math.round(contextWindow / 1000)}k` : "",
    })).sort((one, other) => order.indexOf(one.group) - order.indexOf(other.group));
    pick("Model", rows, current, (key) => this._setModel(key));
  }

  _showLevels() {
    const level = this.conversation?.state.thinkingLevel;
    const levels = this.levels ?? [];
    byId("thinking").hidden = levels.length < 2;
    byId("thinking").replaceChildren(...levels.map((one) => element("option", { value: one, selected: one === level }, one === "off" ? "no thinking" : `thinking: ${one}`)));
  }

  async _setModel(key) {
    const at = key.indexOf("/");
    await this._change("set_model", { provider: key.slice(0, at), modelId: key.slice(at + 1) });
  }

  async _setLevel(level) {
    await this._change("set_thinking_level", { level });
  }

  async _change(type, members) {
    try { await this.conversation.ask(type, members); } catch (error) { notice(error.message, { kind: "error" }); }
    await this.conversation.refreshState().catch(() => {});
    this._showModels();
    this._showLevels();
  }

  _showSpent(stats) {
    const usage = stats?.contextUsage;
    const cost = stats?.cost ? `$${stats.cost < 0.1 ? stats.cost.toFixed(4) : stats.cost.toFixed(2)}` : "$0";
    const percent = typeof usage?.percent === "number" ? Math.round(usage.percent) : null;
    const full = percent === null ? null : element("span", { class: percent > 80 ? "context full" : "context" },
      element("meter", { min: 0, max: 100, high: 80, value: percent, "aria-label": "Context used" }), `${percent}%`);
    const { tokens } = stats ?? {};
    byId("spent").title = tokens ? `${tokens.input.toLocaleString()} tokens in, ${tokens.output.toLocaleString()} out, ${tokens.cacheRead.toLocaleString()} from cache` +
      (usage ? `; context: ${usage.tokens?.toLocaleString() ?? "?"} of ${usage.contextWindow.toLocaleString()}` : "") : "";
    byId("spent").replaceChildren(element("span", {}, cost), ...(full ? [full] : []));
  }

  // --- messages that wait ---

  _showQueue(items) {
    const place = byId("queue");
    place.hidden = items.length === 0;
    place.replaceChildren(...items.map((item) => element("li", {},
      element("span", { class: "note" }, item.queue === "steering" ? "next" : "later"),
      element("span", { class: "words" }, item.text),
      item.queue === "steering" ? null : element("button", { type: "button", class: "quiet", onclick: () => this._queued("promote_queued", item) }, "Now"),
      element("button", { type: "button", class: "quiet", onclick: () => this._takeBack(item) }, "Edit"),
      element("button", { type: "button", class: "quiet", "aria-label": "Remove this message", onclick: () => this._queued("remove_queued", item) }, "✕"))));
  }

  async _queued(type, item) {
    try { await this.conversation.ask(type, { queuedId: item.id }); return true; } catch (error) { notice(error.message, { kind: "warning" }); return false; }
  }

  async _takeBack(item) {
    if (!(await this._queued("remove_queued", item))) return;
    this._addText(item.text);
    this.focus();
  }

  _addText(...texts) {
    this.setText([this.box.value, ...texts].filter(Boolean).join("\n"));
  }
}
