// Agents that the model has started, and what runs in the background: a section above the message box while something works, a
// window with all of them, and for each what it has said and done, or its output. Loaded when there is something to show.

import { byId, element, named, notice, now, openWindow, say, spanOf } from "./dom.js";
import { rendered } from "./rendered.js";

const WORKS = ["waiting", "running"];
const WORDS = { waiting: "waiting for a place", error: "failed", limit: "stopped by a limit", aborted: "stopped", denied: "not allowed" };
const MOST_SHOWN = 8;
const LONGEST_TITLE = 120;
// How long after news of an agent its conversation is asked for anew, in milliseconds.
const SOON = 300;
const COUNT_AFTER = 1000;

export class Agents {
  constructor(conversation) {
    this.conversation = conversation;
    this.counting = null;      // until the cost of the session is asked for again
    this.agents = new Map();   // id -> { agent, work, since }
    this.jobs = new Map();     // id -> { job, since }
    this.rows = new Map();     // what is shown of each, so that nothing moves under a click
    this.opened = null;        // the window that shows one of them
    this.summary = element("summary", {});
    this.list = element("ul", {});
    this.box = element("details", { open: true }, this.summary, this.list);
    byId("work").replaceChildren(this.box);
    this.ticking = setInterval(() => this._show(), 1000);
    this.unfolded = (event) => this._offerConversation(event.target);
    byId("scroll").addEventListener("toggle", this.unfolded, true);
  }

  close() {
    clearInterval(this.ticking);
    clearTimeout(this.counting);
    byId("scroll").removeEventListener("toggle", this.unfolded, true);
    this.opened?.window.close();
    byId("work").hidden = true;
    byId("work").replaceChildren();
  }

  // What there was before this page was.
  async load() {
    const [{ agents }, { jobs }] = await Promise.all([this.conversation.ask("get_agents"), this.conversation.ask("get_jobs")]);
    for (const agent of agents) if (!this.agents.has(agent.agentId)) this._putAgent(agent, null);
    for (const job of jobs) this._putJob(job);
    this._show();
  }

  // An `agent_changed` or `job_changed`.
  take(record) {
    if (record.agent) {
      this._putAgent(record.agent, record.work);
      if (this.opened?.id === record.agent.agentId) this.opened.refresh();
    } else if (record.job) {
      const known = this.jobs.get(record.job.jobId);
      this._putJob(record.job);
      if (known?.job.status === "running" && record.job.status !== "running") this._tellEnd(record.job);
      if (this.opened?.id === record.job.jobId) this.opened.refresh();
    }
    this._show();
  }

  // What the session has cost includes what agents that work have cost.
  _countSoon() {
    this.counting ??= setTimeout(() => { this.counting = null; this.conversation.refreshStats().catch(() => {}); }, COUNT_AFTER);
  }

  titleOf(id) {
    const known = this.agents.get(id);
    return known ? `${known.agent.agent}: ${titleOf(known)}` : "";
  }

  _putAgent(agent, work) {
    const known = this.agents.get(agent.agentId);
    this.agents.set(agent.agentId, { agent, work: work ?? known?.work ?? null, since: now() - (work?.durationMs ?? 0) });
    if (work) this._countSoon();
  }

  _putJob(job) {
    this.jobs.set(job.jobId, { job, since: now() - job.seconds * 1000 });
  }

  _tellEnd(job) {
    const how = job.status === "done" ? "has ended" : job.status === "failed" ? "has failed" : "was stopped";
    const text = `The background ${job.kind} \u201c${short(job.title)}\u201d ${how}${job.exitCode === undefined ? "" : ` with exit code ${job.exitCode}`}.`;
    const look = element("button", { type: "button", class: "quiet", onclick: () => this._openOne(job) }, "Show it");
    notice(text, { kind: job.status === "failed" ? "warning" : "info", key: `job-${job.jobId}`, action: look, lasts: 12000 });
    say(text);
  }

  // --- the section above the message box ---

  _show() {
    const working = [...this.agents.values()].filter((one) => WORKS.includes(one.agent.status));
    const running = [...this.jobs.values()].filter(({ job }) => job.status === "running" && job.kind === "command");
    const place = byId("work");
    const focused = place.contains(document.activeElement);
    place.hidden = !working.length && !running.length;
    if (place.hidden && focused) byId("message").focus();
    const parts = [working.length && `${working.length} ${working.length === 1 ? "agent" : "agents"} at work`, running.length && `${running.length} in the background`];
    setText(this.summary, parts.filter(Boolean).join(" · "));
    const shown = this._inTree(working).slice(0, MOST_SHOWN).map(([one, depth]) => this._agentRow(one, depth));
    shown.push(...running.slice(0, MOST_SHOWN).map((one) => this._jobRow(one)));
    const more = working.length + running.length - shown.length;
    if (more > 0) shown.push(this._moreRow(more));
    const rows = shown.map((row) => row.element);
    if (rows.length !== this.list.children.length || rows.some((row, at) => this.list.children[at] !== row)) {
      const before = document.activeElement;
      this.list.replaceChildren(...rows);
      if (focused && before.isConnected) before.focus();
    }
    const kept = new Set(shown);
    for (const [id, row] of this.rows) if (!kept.has(row)) this.rows.delete(id);
  }

  // Each with how deep it is below others that work, those it has started behind it.
  _inTree(working) {
    const ids = new Set(working.map((one) => one.agent.agentId));
    const below = (id, depth) => working.filter((one) => one.agent.parentAgentId === id).flatMap((one) => [[one, depth], ...below(one.agent.agentId, depth + 1)]);
    return working.filter((one) => !ids.has(one.agent.parentAgentId)).flatMap((one) => [[one, 0], ...below(one.agent.agentId, 1)]);
  }

  _row(id, make) {
    if (!this.rows.has(id)) this.rows.set(id, make());
    return this.rows.get(id);
  }

  _agentRow(one, depth) {
    const { agent, work } = one;
    const row = this._row(agent.agentId, () => {
      const parts = { title: element("span", { class: "name" }), facts: element("span", { class: "note" }), doing: element("span", { class: "note doing" }) };
      const open = element("button", { type: "button", class: "quiet", onclick: () => this._openOne(this.agents.get(agent.agentId).agent) }, element("b", {}, named(agent.agent)), " ", parts.title, " ", parts.facts, parts.doing);
      return { ...parts, element: element("li", { class: `depth-${Math.min(depth, 4)}` }, open) };
    });
    setText(row.title, named(titleOf(one)));
    setText(row.facts, factsOf(agent, work, WORKS.includes(agent.status) && agent.status !== "waiting" ? now() - one.since : null));
    setText(row.doing, named(agent.activity ?? ""));
    return row;
  }

  _jobRow({ job, since }) {
    const row = this._row(job.jobId, () => {
      const facts = element("span", { class: "note" });
      const open = element("button", { type: "button", class: "quiet", onclick: () => this._openOne(job) }, element("code", { class: "name" }, named(short(job.title))), " ", facts);
      const stop = element("button", { type: "button", class: "quiet bad talk-only", "aria-label": `Stop ${named(short(job.title))}`, onclick: () => this._try("stop_job", { jobId: job.jobId }) }, "Stop");
      return { facts, element: element("li", { class: "job" }, open, stop) };
    });
    setText(row.facts, `in the background, ${spanOf(now() - since)}`);
    return row;
  }

  _moreRow(more) {
    const row = this._row("more", () => { const open = element("button", { type: "button", class: "quiet link", onclick: () => this.openAll() }); return { open, element: element("li", {}, open) }; });
    setText(row.open, `and ${more} more`);
    return row;
  }

  async _try(type, members) {
    try { return await this.conversation.ask(type, members); } catch (error) { notice(error.message, { kind: "error", key: type }); return null; }
  }

  // In the card of a call that has started an agent: the way to what the agent has said and done.
  _offerConversation(card) {
    const known = card.open && card.dataset?.call && [...this.agents.values()].reverse().find((one) => one.agent.toolCallId === card.dataset.call);
    if (!known || card.querySelector(".to-agent")) return;
    (card.querySelector(".inner") ?? card).append(element("button", { type: "button", class: "quiet link to-agent", onclick: () => this._openOne(known.agent) }, "Show what it has said and done"));
  }

  // --- windows ---

  // All agents and jobs, what works first.
  openAll() {
    const agents = [...this.agents.values()].reverse().sort((one, other) => WORKS.includes(other.agent.status) - WORKS.includes(one.agent.status));
    const jobs = [...this.jobs.values()].filter(({ job }) => job.kind === "command").reverse();
    const row = (about, title, facts) => element("li", {}, element("button", { type: "button", class: "quiet", onclick: () => { opened.close(); this._openOne(about); } },
      element("span", { class: "name" }, named(title)), element("span", { class: "note" }, facts)));
    const opened = openWindow("Agents and background",
      agents.length + jobs.length ? null : element("p", { class: "note" }, "No agent was started in this session, and nothing runs in the background."),
      agents.length ? element("ul", { class: "branch-list" }, ...agents.map((one) => row(one.agent, `${one.agent.agent}: ${titleOf(one)}`, factsOf(one.agent, one.work, null)))) : null,
      jobs.length ? element("ul", { class: "branch-list" }, ...jobs.map(({ job }) => row(job, job.title, stateOf(job)))) : null);
    opened.querySelector("ul button")?.focus();
  }

  _openOne(about) {
    this.opened?.window.close();
    const agent = about.agent ? about : about.kind === "agent" ? this.agents.get(about.jobId)?.agent : null;
    this.opened = agent ? this._openAgent(agent) : this._openJob(about);
    this.opened.window.addEventListener("close", () => { this.opened = null; });
    this.opened.refresh();
  }

  _openAgent(agent) {
    const id = agent.agentId;
    const facts = element("p", { class: "note", role: "status" });
    const place = element("div", { class: "transcript", tabindex: "0", role: "region", "aria-label": "What it has said and done" });
    const input = element("input", { type: "text", "aria-label": "Message to this agent", placeholder: "Tell it something", autocomplete: "off" });
    const form = element("form", { class: "answers talk-only", onsubmit: async (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      if (await this._try("steer_agent", { agentId: id, message: input.value }) === null) return;
      input.value = "";
      setText(sent, "It gets the message at its next break.");
    } }, input, element("button", { type: "submit", class: "first" }, "Send"), element("button", { type: "button", class: "deny", onclick: () => this._try("abort_agent", { agentId: id }) }, "Stop it"));
    const sent = element("p", { class: "note", role: "status" });
    const window = openWindow(`${named(agent.agent)}: ${named(titleOf(this.agents.get(id)))}`, facts, place, form, sent);
    window.classList.add("one-agent");
    const shown = { count: 0, busy: false, again: false };
    const refresh = async () => {
      const known = this.agents.get(id);
      setText(facts, factsOf(known.agent, known.work, null));
      form.hidden = !WORKS.includes(known.agent.status);
      if (shown.busy) { shown.again = true; return; }
      shown.busy = true;
      try { await this._showMessages(id, place, shown); } catch (error) { place.append(element("p", { class: "bad" }, error.message)); }
      await new Promise((done) => setTimeout(done, SOON));
      shown.busy = false;
      if (shown.again && window.open) { shown.again = false; refresh(); }
    };
    return { id, window, refresh };
  }

  // Only what is new is made; a conversation that was compacted is shown anew.
  async _showMessages(id, place, shown) {
    const { messages } = await this.conversation.ask("get_agent_messages", { agentId: id });
    if (messages.length < shown.count) { place.replaceChildren(); shown.count = 0; }
    const atEnd = place.scrollHeight - place.scrollTop - place.clientHeight < 60;
    for (const message of messages.slice(shown.count)) await this._showMessage(message, place);
    shown.count = messages.length;
    if (atEnd) place.scrollTop = place.scrollHeight;
    if (!messages.length && !place.childElementCount) place.append(element("p", { class: "note" }, "It has not begun yet."));
  }

  async _showMessage(message, place) {
    const blocks = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content ?? [];
    const text = blocks.filter((block) => block.type === "text").map((block) => block.text).join("");
    if (message.role === "user") place.append(element("article", { class: "user" }, element("div", { class: "body lines", dir: "auto" }, text)));
    else if (message.role === "toolResult") {
      const card = [...place.querySelectorAll("[data-call]")].reverse().find((one) => one.dataset.call === message.toolCallId);
      const output = element("pre", { class: `terminal output${message.isError ? " bad" : ""}`, tabindex: "0", "aria-label": "Result" }, text);
      if (card) noteOf(card, message.isError ? "failed" : "");
      if (text) (card?.querySelector(".inner") ?? card ?? place).append(output);
    } else if (message.role === "assistant") {
      const body = element("div", { class: "body", dir: "auto" });
      for (const block of blocks) await this._showBlock(block, body);
      if (message.errorMessage) body.append(element("p", { class: "bad" }, message.errorMessage));
      if (body.childElementCount) place.append(element("article", { class: "assistant" }, body));
    }
  }

  async _showBlock(block, body) {
    if (block.type === "text" && block.text.trim()) body.append(rendered((await this.conversation.ask("render_html", { markdown: block.text })).html));
    if (block.type !== "toolCall") return;
    const card = rendered((await this.conversation.ask("render_html", { call: { name: block.name, arguments: block.arguments ?? {} } })).html).firstElementChild;
    card.dataset.call = block.id;
    noteOf(card, "");
    body.append(card);
  }

  _openJob(job) {
    const id = job.jobId;
    const facts = element("p", { class: "note", role: "status" });
    const output = element("pre", { class: "terminal output", tabindex: "0", "aria-label": "Output" });
    const stop = element("button", { type: "button", class: "deny", onclick: () => this._try("stop_job", { jobId: id }) }, "Stop it");
    const actions = element("div", { class: "answers talk-only" }, stop);
    const window = openWindow(named(short(job.title)), facts, output, actions);
    window.classList.add("one-agent");
    let next = 0;
    let busy = false;
    const refresh = async () => {
      const known = this.jobs.get(id);
      setText(facts, stateOf(known.job));
      actions.hidden = known.job.status !== "running";
      if (busy) return;
      busy = true;
      const answer = await this._try("get_job_output", { jobId: id, after: next });
      busy = false;
      if (!answer) return;
      const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 60;
      output.append(answer.text);
      next = answer.next;
      if (!output.textContent) setText(facts, `${stateOf(known.job)}, no output yet`);
      if (atEnd) output.scrollTop = output.scrollHeight;
    };
    const watching = setInterval(refresh, 1000);
    window.addEventListener("close", () => clearInterval(watching));
    return { id, window, refresh };
  }
}

const short = (text) => { const line = text.split(/\s+/).join(" ").trim(); return line.length > LONGEST_TITLE ? `${line.slice(0, LONGEST_TITLE - 1)}…` : line; };
const titleOf = ({ agent, work }) => short(agent.title ?? work?.task ?? agent.agentId);
const dollars = (cost) => `$${cost < 0.1 ? cost.toFixed(4) : cost.toFixed(2)}`;

function factsOf(agent, work, milliseconds) {
  const tokens = work?.tokens ?? agent.usage.totalTokens;
  const cost = work?.cost ?? agent.usage.cost.total;
  const parts = [agent.status === "running" ? "" : WORDS[agent.status] ?? agent.status, work?.toolCount && `${work.toolCount} ${work.toolCount === 1 ? "call" : "calls"}`,
    tokens && `${tokens < 1000 ? tokens : `${Math.round(tokens / 1000)}k`} tokens`, cost && dollars(cost), milliseconds !== null && spanOf(milliseconds)];
  return parts.filter(Boolean).join(" · ");
}

function stateOf(job) {
  if (job.status === "running") return "running in the background";
  return `${job.status}${job.exitCode === undefined ? "" : `, exit code ${job.exitCode}`}, ${spanOf(job.seconds * 1000)}`;
}

// What stands behind the title of a call, where its result would be told.
function noteOf(card, text) {
  const note = card.querySelector("summary > .none, summary > .bad");
  if (note) { note.textContent = text; note.className = text ? "note bad" : "note none"; }
}

// Only what has changed is written: readers of screens and selections are left alone.
function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}
