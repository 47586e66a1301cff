// Questions of the agent: about permission, with the change that is asked about, and those of extensions.
//
// They stand above the message box and take no key that is meant for the box: Enter, pressed to send a message just when a
// question comes, must not allow anything. The first answer of any tab counts, and closes the question in the others.

import { byId, element, named, notice, now, say, typing } from "./dom.js";
import { rendered } from "./rendered.js";

// A question takes neither keys nor clicks before it could be seen with all that it is about: a button must not come under
// a click that was meant for what stood there before. A key that has answered, held down or struck twice, is for so long
// neither text nor an answer to the next question. Of one who has just typed, no keys are taken away. In milliseconds.
const SEEN_AFTER = 400;
const STRAY_FOR = 400;
const TYPED_WITHIN = 1000;
// What the answer was to a question that another browser has answered.
const ANSWERED = { once: "allowed once", session: "allowed for this session", denied: "denied" };
const ASKING = ["select", "confirm", "input", "editor"];

export class Questions {
  constructor(focusBox, changed) {
    this.open = new Map();
    this.focusBox = focusBox;
    this.changed = changed;
    this.conversation = null;
    this.struck = null;
    this.typedAt = -Infinity;
    document.addEventListener("keydown", (event) => {
      // Enter ends a message, and with it the typing.
      if (event.key === "Enter") this.typedAt = -Infinity;
      else if (event.key.length === 1 && typing()) this.typedAt = now();
    }, true);
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

  // The number key of an option of the first question; true if there is one, also if it is too early for an answer.
  key(number, held) {
    const button = byId("questions").querySelector(`[data-key="${number}"]`);
    if (button && !held && !button.disabled && !button.closest(".fresh")) {
      button.click();
      this.struck = { number, until: now() + STRAY_FOR };
    }
    return Boolean(button);
  }

  // Whether a key is still the one that has just answered.
  isStray(event) {
    const stray = event.key === this.struck?.number && (event.repeat || now() < this.struck.until);
    if (!stray) this.struck = null;
    return stray;
  }

  _ask(record) {
    if (this.open.has(record.id)) return;
    const permission = Boolean(record.toolCallId);
    const title = element("h2", { id: `question-${record.id}`, dir: "auto" }, named(record.title));
    const body = element("div", { class: "about-it body" });
    const form = element("form", { class: "answers" });
    const made = element("section", { class: permission ? "question permission fresh" : "question fresh", role: "alertdialog", tabindex: "-1", "aria-labelledby": title.id },
      title, body, form);
    made.sent = null;
    this.open.set(record.id, made);
    this[`_${record.method}`](record, form, body);
    if (record.timeout) this._countDown(record, made);
    byId("questions").append(made);
    const seen = () => this._holdOff(made);
    if (permission) {
      made.dataset.call = record.toolCallId;
      this.conversation.calls.hold(record.toolCallId, true);
      this._explain(record, body).finally(seen);
    } else seen();
    this.changed(this.open.size);
    say(`${permission ? "Permission is needed" : "The agent asks"}: ${named(record.title)}`, true);
    const idle = now() - this.typedAt > TYPED_WITHIN;
    if (!typing() || (idle && document.activeElement === byId("message") && byId("message").value === "")) made.focus();
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
    for (const one of question?.querySelectorAll("button, input, textarea") ?? []) one.disabled = true;
    if (this.open.get(record.id)?.contains(document.activeElement) || document.activeElement === document.body) this.focusBox();
  }

  _select(record, form) {
    form.append(...record.options.map((option, at) => element("button", {
      type: "button", class: /^deny|^no\b|^cancel/i.test(option) ? "deny" : at === 0 ? "first" : "", data: at < 9 ? { key: at + 1 } : {}, onclick: () => this._answer(record, { value: option }),
    }, named(option), at < 9 ? element("kbd", {}, String(at + 1)) : null)));
    const deny = record.options.find((option) => /^deny\b/i.test(option));
    if (!record.toolCallId) form.append(this._cancel(record));
    else if (deny) this._refuse(record, form, deny);
  }

  // Deny, and say why or what to do instead. An answer has no room for words, so they are sent as a message that steers the
  // run, and before the answer: then the model reads them together with the refusal.
  _refuse(record, form, deny) {
    const number = record.options.length + 1;
    const why = element("textarea", { rows: 1, "aria-label": "Why, or what to do instead", placeholder: "Why, or what to do instead" });
    const send = element("button", { type: "submit", class: "deny" }, "Deny and send");
    const opens = element("button", { type: "button", class: "deny", data: { key: number }, onclick: () => show(true) }, "Deny and say why\u2026", element("kbd", {}, String(number)));
    const row = element("div", { class: "why", hidden: true }, why, send);
    const show = (shown) => {
      if (shown && opens.closest(".fresh")) return;
      row.hidden = !shown;
      opens.hidden = shown;
      (shown ? why : opens).focus();
    };
    why.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") { event.stopPropagation(); show(false); }
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const text = why.value.trim();
      send.disabled = true;
      try {
        if (text) await this.conversation.ask("prompt", { message: text, streamingBehavior: "steer" });
        this._answer(record, { value: deny }, true);
      } catch (error) {
        notice(error.message, { kind: "error", key: "send" });
        send.disabled = false;
      }
    });
    form.append(opens, row);
  }

  _confirm(record, form, body) {
    body.append(element("p", { class: "lines", dir: "auto" }, named(record.message)));
    form.append(
      element("button", { type: "button", class: "first", data: { key: 1 }, onclick: () => this._answer(record, { confirmed: true }) }, "Yes", element("kbd", {}, "1")),
      element("button", { type: "button", data: { key: 2 }, onclick: () => this._answer(record, { confirmed: false }) }, "No", element("kbd", {}, "2")));
  }

  _input(record, form) {
    const input = element("input", { type: "text", placeholder: record.placeholder ?? "", "aria-label": record.title });
    form.addEventListener("submit", (event) => { event.preventDefault(); this._answer(record, { value: input.value }, true); });
    form.append(input, element("button", { type: "submit", class: "first" }, "Answer"), this._cancel(record));
  }

  _editor(record, form) {
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
    const place = byId("status");
    const old = [...document.querySelectorAll(".widget")].find((one) => one.dataset.key === key);
    old?.remove();
    if (lines) place.before(element("div", { class: "widget lines", data: { key } }, lines));
  }
}
