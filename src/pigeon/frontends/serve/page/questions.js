// Questions of the agent: about permission, with the change that is asked about, and those of extensions.
//
// They stand above the message box and leave it the keys: what is typed becomes a message, wherever the focus is. Only with an
// empty box the arrow keys select an answer of the first question, Enter takes it and Esc declines. A message that was begun
// after the question appeared declines it, and is sent before the answer: then the model reads it together with the refusal.
// The first answer of any tab counts, and closes the question in the others.

import { byId, element, named, notice, now, say, typing } from "./dom.js";
import { rendered } from "./rendered.js";

// A question takes neither keys nor clicks before it could be seen with all that it is about: a button must not come under
// a click that was meant for what stood there before. An Enter so soon after another one is the same, struck twice. Of one who
// has just typed, no keys are taken away. Who sees that a question takes answers is not refused one: an Enter that came before
// the question is forgotten by then. In milliseconds.
const SEEN_AFTER = 500;
const STRUCK_WITHIN = 450;
const TYPED_WITHIN = 1000;
// What the answer was to a question that another browser has answered.
const ANSWERED = { once: "allowed once", session: "allowed for this session", denied: "denied" };
const ASKING = ["select", "confirm", "input", "editor"];
// The question about a plan, which follows it, and the answer with which one says what should change.
const PLAN = "Accept this plan?";
const CHANGE = "Change";
const HINT = "Enter to select, Esc to decline";
const ARROWS = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 };

export class Questions {
  constructor(focusBox, changed) {
    this.open = new Map();
    this.focusBox = focusBox;
    this.changed = changed;
    this.conversation = null;
    this.typedAt = -Infinity;
    this.enterAt = -Infinity;
    this.begunAt = null;      // when what stands in the box was begun
    this.box = byId("message");
    // Before the box itself, which would recall an earlier message.
    document.addEventListener("keydown", (event) => this._key(event), true);
    this.box.addEventListener("input", () => this.noteText(), true);
  }

  // The text of the box has changed.
  noteText() {
    // Who goes on right after a message was sent has not looked up.
    if (!this.box.value) this.begunAt = null;
    else this.begunAt ??= now() - this.enterAt < STRUCK_WITHIN ? 0 : now();
  }

  use(conversation) {
    this.conversation = conversation;
    this.open.clear();
    byId("questions").replaceChildren();
    this.changed(0);
  }

  // An `extension_ui_request`.
  take(record) {
    if (ASKING.includes(record.method)) return this._ask(record);
    if (record.method === "cancel") return this.close(record.targetId);
    if (record.method === "notify") return void notice(record.message, { kind: record.notifyType ?? "info", lasts: record.notifyType === "error" ? 0 : 8000 });
    if (record.method === "set_editor_text") return this.conversation.on.editor(record.text);
    if (record.method === "setStatus" || record.method === "setWidget") return this._widget(record);
  }

  close(id) {
    const question = this.open.get(id);
    if (!question) return;
    const inside = question.contains(document.activeElement);
    this.open.delete(id);
    // It may be closed before it is told how it was answered.
    this.last = { id, question };
    question.remove();
    // Others may have moved to where this one was, under a click that was meant for it.
    for (const other of this.open.values()) this._holdOff(other);
    if (question.dataset.call) this.conversation.calls.hold(question.dataset.call, false);
    this.changed(this.open.size);
    if (inside) this.focusBox();
  }

  // A question about permission has ended. If another browser was first with another answer, that is said.
  resolved(id, outcome) {
    const question = this.open.get(id) ?? (this.last?.id === id ? this.last.question : null);
    const mine = question && question.sent !== null && /^allow/i.test(question.sent) === (outcome !== "denied");
    if (question && !mine && Object.hasOwn(ANSWERED, outcome)) {
      notice(`${question.querySelector("h2").textContent.slice(0, 120)}: ${ANSWERED[outcome]} in another browser`, { key: `answered-${id}`, lasts: 8000 });
    }
    this.close(id);
  }

  // The questions that were not answered here, the oldest first. Who only reads is asked nothing.
  get _waiting() {
    return document.body.dataset.scope === "read" ? [] : [...this.open.values()].filter((one) => one.sent === null);
  }

  // The first one with answers to select.
  get _first() {
    return this._waiting.find((one) => one.choices.length > 0);
  }

  // Decline the oldest question, if there is one; also one that waits for words.
  decline() {
    const [question] = this._waiting;
    if (question && !question.classList.contains("fresh")) this._answer({ id: question.of }, { cancelled: true });
    return Boolean(question);
  }

  get canReply() {
    return Boolean(this._first);
  }

  // Whether what is in the box would decline the first question.
  get isReply() {
    const text = this.box.value.trim();
    return Boolean(this._first) && text !== "" && !text.startsWith("/") && this.begunAt >= this._first.shownAt;
  }

  // Hold the first question while a message is sent in its place; gives what to do when that is done, or has failed.
  hold() {
    const question = this._first;
    question.sent = "";
    question.setEnabled(false);
    return (sent) => {
      question.sent = null;
      question.setEnabled(true);
      if (sent) this._answer({ id: question.of }, { cancelled: true }, true);
    };
  }

  // Nothing that can be part of a sentence answers: it goes to the box.
  _key(event) {
    const { key } = event;
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    const since = now() - this.enterAt;
    if (key === "Enter") this.enterAt = now();
    // Enter ends a message, and with it the typing.
    if (key === "Enter") this.typedAt = -Infinity;
    else if (key.length === 1 && typing()) this.typedAt = now();
    if (!this.open.size || !plain || event.isComposing || event.keyCode === 229 || document.querySelector("dialog[open]")) return;
    const focused = document.activeElement;
    const inQuestions = focused !== document.body && byId("questions").contains(focused);
    if (key.length === 1 && !typing() && (inQuestions || key !== " ")) return this.focusBox();
    const first = this._first;
    if (!first || this.box.value || (focused !== this.box && focused !== document.body)) return;
    if (Object.hasOwn(ARROWS, key)) {
      event.preventDefault();
      event.stopPropagation();
      this._select(first, first.chosen + ARROWS[key]);
    } else if (key === "Enter" && !event.shiftKey && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      if (!event.repeat && since >= STRUCK_WITHIN) first.choices[first.chosen].click();
    }
  }

  _select(question, at) {
    question.chosen = (at + question.choices.length) % question.choices.length;
    question.choices.forEach((one, number) => one.classList.toggle("chosen", number === question.chosen));
    say(question.choices[question.chosen].textContent);
  }

  _ask(record) {
    if (this.open.has(record.id)) return;
    const permission = Boolean(record.toolCallId);
    const plan = record.method === "select" && record.title.startsWith(`${PLAN}\n\n`) ? record.title.slice(PLAN.length).trim() : null;
    const heading = named(plan === null ? record.title : PLAN);
    const title = element("h2", { id: `question-${record.id}`, dir: "auto" }, heading);
    const body = element("div", { class: "about-it body" });
    const form = element("form", { class: "answers" });
    const made = element("section", { class: permission ? "question permission fresh" : "question fresh", role: "alertdialog", tabindex: "-1", "aria-labelledby": title.id },
      title, body, form);
    made.sent = null;
    made.of = record.id;
    made.shownAt = now();
    made.choices = [];
    made.chosen = 0;
    made.setEnabled = (enabled) => { for (const one of made.querySelectorAll("button, input, textarea")) one.disabled = !enabled; };
    this.open.set(record.id, made);
    if (plan === null) this[`_ask_${record.method}`](record, form, body);
    else this._askPlan(record, plan, form, body);
    const asker = record.agentId && this.conversation.agents?.titleOf(record.agentId);
    if (asker) title.after(element("p", { class: "note" }, `For the agent ${named(asker)}`));
    made.choices = [...form.querySelectorAll("[data-choice]")];
    made.choices[0]?.classList.add("chosen");
    if (made.choices.length) form.append(element("p", { class: "note keys" }, HINT));
    if (record.timeout) this._countDown(record, made);
    byId("questions").append(made);
    const seen = () => this._holdOff(made);
    if (permission) {
      made.dataset.call = record.toolCallId;
      this.conversation.calls.hold(record.toolCallId, true);
      this._explain(record, body).finally(seen);
    } else seen();
    this.changed(this.open.size);
    say(`${permission ? "Permission is needed" : "The agent asks"}: ${heading}`, true);
    const idle = now() - this.typedAt > TYPED_WITHIN && !this.box.value;
    const free = document.activeElement === document.body || (idle && document.activeElement === this.box);
    const field = form.querySelector("input, textarea");
    if (free && field) field.focus();
    else if (document.activeElement === document.body && !matchMedia("(pointer: coarse)").matches) this.focusBox();
    this.conversation.follow();
  }

  _holdOff(question) {
    question.classList.add("fresh");
    clearTimeout(question.timer);
    question.timer = setTimeout(() => question.classList.remove("fresh"), SEEN_AFTER);
  }

  // Words that were typed in answer to it are no mistake.
  _answer(record, members, typed = false) {
    if (!typed && this.open.get(record.id)?.classList.contains("fresh")) return;
    // Closed when the server says that it has ended; should the connection be away, it stays to be answered again.
    if (!this.conversation.connection.isOpen) return void notice("There is no connection now. Answer again when it is back", { kind: "warning", key: "away", lasts: 6000 });
    this.conversation.connection.tell({ type: "extension_ui_response", id: record.id, ...members });
    const question = this.open.get(record.id);
    if (question) question.sent = members.value ?? "";
    question?.setEnabled(false);
    if (this.open.get(record.id)?.contains(document.activeElement) || document.activeElement === document.body) this.focusBox();
  }

  _choice(at, label, answer, kind) {
    return element("button", { type: "button", class: kind, data: { choice: at + 1 }, onclick: answer }, named(label));
  }

  _ask_select(record, form) {
    form.append(...record.options.map((option, at) => this._choice(at, option, () => this._answer(record, { value: option }),
      /^deny|^no\b|^cancel/i.test(option) ? "deny" : at === 0 ? "first" : "")));
    if (!record.toolCallId) form.append(this._cancel(record));
  }

  // A plan is read like an answer, and scrolls. What should change is sent before the answer, so that the model reads both together.
  _askPlan(record, plan, form, body) {
    const choices = record.options.map((option, at) => this._choice(at, option, () => (option === CHANGE ? this._askChange(record, form, choices) : this._answer(record, { value: option })),
      at === 0 ? "first" : option === record.options.at(-1) ? "deny" : ""));
    form.append(...choices);
    body.classList.add("plan");
    body.tabIndex = 0;
    body.setAttribute("role", "region");
    body.setAttribute("aria-label", "The plan");
    body.textContent = plan;
    this.conversation.ask("render_html", { markdown: plan }).then(({ html }) => body.replaceChildren(rendered(html)), () => {});
  }

  _askChange(record, form, choices) {
    const made = this.open.get(record.id);
    const input = element("textarea", { rows: 3, "aria-label": "What should change?", placeholder: "What should change?" });
    const back = element("button", { type: "button", class: "quiet", onclick: () => { made.choices = choices; form.replaceChildren(...choices); choices[1].focus(); } }, "Back");
    form.onsubmit = async (event) => {
      event.preventDefault();
      if (!input.value.trim()) return void input.focus();
      made.setEnabled(false);
      try {
        await this.conversation.ask("prompt", { message: input.value, streamingBehavior: "steer", clientMessageId: crypto.randomUUID?.() ?? `plan-${record.id}-${now()}` });
        this._answer(record, { value: CHANGE }, true);
      } catch (error) {
        made.setEnabled(true);
        notice(error.message, { kind: "error", key: "plan" });
      }
    };
    // While words are wanted, no key selects an answer.
    made.choices = [];
    form.replaceChildren(input, element("button", { type: "submit", class: "first" }, "Send"), back);
    input.focus();
  }

  _ask_confirm(record, form, body) {
    body.append(element("p", { class: "lines", dir: "auto" }, named(record.message)));
    form.append(this._choice(0, "Yes", () => this._answer(record, { confirmed: true }), "first"), this._choice(1, "No", () => this._answer(record, { confirmed: false })));
  }

  _ask_input(record, form) {
    const input = element("input", { type: "text", placeholder: record.placeholder ?? "", "aria-label": record.title });
    form.addEventListener("submit", (event) => { event.preventDefault(); this._answer(record, { value: input.value }, true); });
    form.append(input, element("button", { type: "submit", class: "first" }, "Answer"), this._cancel(record));
  }

  _ask_editor(record, form) {
    const input = element("textarea", { rows: 8, value: record.prefill ?? "", "aria-label": record.title });
    form.addEventListener("submit", (event) => { event.preventDefault(); this._answer(record, { value: input.value }, true); });
    form.append(input, element("button", { type: "submit", class: "first" }, "Answer"), this._cancel(record));
  }

  _cancel(record) {
    return element("button", { type: "button", class: "quiet", onclick: () => this._answer(record, { cancelled: true }) }, "Cancel");
  }

  // What would be done: the change of a file, or the call with its arguments.
  async _explain(record, body) {
    const ask = record.diff ? { diff: record.diff } : record.toolName ? { call: { name: record.toolName, arguments: record.args ?? {} } } : null;
    if (!ask) return;
    try {
      const { html } = await this.conversation.ask("render_html", ask);
      const made = rendered(html);
      for (const card of made.querySelectorAll("details")) card.open = true;
      for (const note of made.querySelectorAll("summary > .none")) note.remove();
      for (const long of made.querySelectorAll("pre:not(.code pre), .code, .diff")) { long.tabIndex = 0; long.setAttribute("role", "group"); long.setAttribute("aria-label", "What you are asked about"); }
      body.append(made);
    } catch {
      body.append(element("pre", { tabindex: "0" }, record.diff ?? JSON.stringify(record.args, null, 2)));
    }
    this.conversation.follow();
  }

  _countDown(record, made) {
    const note = element("p", { class: "note" });
    const until = now() + record.timeout - this.conversation.askedAgo(record.id);
    const tick = () => {
      if (!made.isConnected && this.open.get(record.id) !== made) return clearInterval(timer);
      const left = Math.max(0, Math.round((until - now()) / 1000));
      note.textContent = record.toolCallId ? `Denied if there is no answer within ${left} s` : `Closes in ${left} s`;
    };
    const timer = setInterval(tick, 1000);
    tick();
    made.append(note);
  }

  // Lines that an extension shows above the message box.
  _widget(record) {
    const key = record.statusKey ?? record.widgetKey;
    const lines = record.method === "setStatus" ? record.statusText : record.widgetLines?.join("\n");
    const place = byId("doing");
    const old = [...document.querySelectorAll(".widget")].find((one) => one.dataset.key === key);
    old?.remove();
    if (lines) place.before(element("div", { class: "widget lines", data: { key } }, lines));
  }
}
