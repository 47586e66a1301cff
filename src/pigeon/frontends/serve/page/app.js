// The page as a whole: which session is shown, the bar above it, and keys.

import { byId, download, element, has, keep, named, notice, now, openWindow, ordered, removeNotice, request, say, typing } from "./dom.js";
import { Attention } from "./attention.js";
import { Conversation } from "./conversation.js";
import { Composer } from "./composer.js";
import { Questions } from "./questions.js";
import { Sessions } from "./sessions.js";
import { explainNoModel, goTo, Search, showBranches, showHelp } from "./panels.js";

let conversation = null;
let asked = 0;  // how many questions are open
let reviewed = null;  // the window with the changes
let agentsPart = null;
let agents = null;    // what is known of agents and of the background, once there is something

const commands = {
  new: { about: "a new session", run: () => sessions.chooseFolder() },
  name: { about: "name this session", run: (name) => (name ? rename(name) : askName()) },
  compact: { about: "make room in the context", run: (rest) => compact(rest) },
  search: { about: "search this conversation", run: () => search.open(conversation) },
  branches: { about: "go to another branch", run: () => branches() },
  changes: { about: "what this session has changed in files", run: () => review() },
  agents: { about: "agents, and what runs in the background", run: () => openAgents() },
  plan: { about: "plan first: nothing is changed before you accept a plan", run: () => composer.setMode("plan") },
  export: { about: "this conversation as a page", run: () => exportPage() },
  help: { about: "keyboard shortcuts", run: showHelp },
};
const composer = new Composer(commands, () => questions);
const search = new Search();
const attention = new Attention();
const sessions = new Sessions((id) => show(id), (scope) => showScope(scope));
const questions = new Questions(() => composer.focus(), (open) => {
  if (open > asked) attention.tell(conversation.id, titleOf(), "The agent asks you something");
  asked = open;
  conversation?.asks(open > 0);
  composer.changed("questions");
  showTitle();
});

// --- which session ---

async function show(id, push = true) {
  if (push) history.pushState(null, "", id ? `/?session=${encodeURIComponent(id)}` : "/");
  closeSide();
  if (conversation?.id === id) return composer.focus();
  conversation?.close();
  agents?.close();
  conversation = agents = null;
  byId("notices").replaceChildren();
  byId("search").hidden = true;
  showChanges();
  sessions.select(id, sessions.about);
  if (!id) return showStart();
  byId("start").hidden = true;
  byId("tools").hidden = false;
  const made = new Conversation(id, {
    changed: (what) => { if (conversation === made) changed(what); },
    question: (record) => questions.take(record),
    answered: (question, outcome) => questions.resolved(question, outcome),
    editor: (text) => composer.setText(text),
    ended: (how) => { if (conversation === made) attention.tell(id, titleOf(), how ?? "The answer is complete."); },
    work: (record) => { if (conversation === made) showWork(record); },
    connection: showConnection,
    refused: (error) => refused(error),
  });
  conversation = made;
  questions.use(made);
  composer.use(made);
  showTitle();
  if (!matchMedia("(pointer: coarse)").matches) composer.focus();
  try {
    await made.open();
    sessions.load().catch(() => {});
  } catch (error) {
    if (conversation === made && !made.connection.closed) refused(error);
  }
}

function showStart() {
  composer.use(null);
  questions.use(null);
  byId("tools").hidden = true;
  byId("earlier").hidden = byId("newest").hidden = true;
  byId("start").hidden = false;
  const recent = sessions.recent();
  const about = recent.length ? "Start a session in a folder, or continue one of these." : "A session is a conversation with an agent that works in a folder.";
  byId("start").replaceChildren(element("h2", {}, "What shall we work on?"),
    element("p", {}, about),
    element("button", { type: "button", class: "first talk-only", onclick: () => sessions.chooseFolder() }, "Start a session"),
    element("ul", { class: "recent-sessions" }, ...recent));
  showTitle();
}

function exportPage() {
  const { id } = conversation;
  download(`/api/sessions/${encodeURIComponent(id)}/export`, `${id}.html`).catch(refused);
}

function refused(error) {
  if (error.status === 401) return void location.reload();
  // Going to the start removes what was told before.
  if (error.status === 404) show(null);
  notice(error.message, { kind: "error", key: "refused" });
}

// --- what is shown of its state ---

function changed(what) {
  composer.changed(what);
  if (what === "state" || what === "running") showTitle();
  if (what === "changes") showChanges();
  if (["entries", "running", "models", "state"].includes(what)) showEmpty();
  if (what === "running") sessions.load().then(showTitle).catch(() => {});
}

function showEmpty() {
  const empty = conversation.atEnd && !conversation.running && !conversation.page?.moreBefore && !byId("entries").querySelector("article") && !byId("live").children.length;
  byId("start").hidden = !empty;
  if (!empty) return;
  if (composer.lacksModel) byId("start").replaceChildren(element("h2", {}, "No model yet"), explainNoModel(() => composer.tryDemo()));
  else byId("start").replaceChildren(element("h2", {}, "A new session"), element("p", {}, `The agent works in ${named(conversation.folder ?? "its folder")}. Tell it what to do.`));
}

function showChanges() {
  const count = conversation?.changes.files.length ?? 0;
  byId("review").hidden = count === 0;
  byId("review").replaceChildren(element("span", { class: "word" }, "Changes"), " ", element("span", { class: "count" }, String(count)), element("span", { class: "unseen" }, count === 1 ? " file" : " files"));
  if (reviewed?.isOpen) reviewed.changed();
}

// Agents and jobs: an event about one, or null for those that there were before.
async function showWork(record) {
  const shown = conversation;
  if (!record) {
    const [found, { jobs }] = await Promise.all([shown.ask("get_agents"), shown.ask("get_jobs")]).catch(() => [{ agents: [] }, { jobs: [] }]);
    if (!found.agents.length && !jobs.length) return;
  }
  const view = await agentsOf(shown);
  if (record) view?.take(record);
}

// The part of the page that shows them is loaded once.
async function agentsOf(shown) {
  // One promise, so that events keep their order while it is loaded.
  agentsPart ??= import("./agents.js");
  const { Agents } = await agentsPart;
  if (conversation !== shown) return null;
  if (!agents) {
    agents = new Agents(shown);
    shown.agents = agents;
    agents.load().catch(() => {});
  }
  return agents;
}

async function openAgents() {
  try {
    const view = await agentsOf(conversation);
    await view?.load();
    if (!document.querySelector("dialog[open]")) view?.openAll();
  } catch (error) { notice(error.message, { kind: "error" }); }
}

function showTitle() {
  byId("title").textContent = titleOf();
  byId("folder").textContent = named(conversation?.folder ?? "");
  attention.title(conversation && titleOf(), { asks: questions.open.size > 0, running: conversation?.running });
}

function titleOf() {
  const row = sessions.rows.find((one) => one.id === conversation?.id);
  return conversation ? ordered(conversation.state.sessionName || row?.name || row?.firstMessage || "New session") : "Pigeon";
}

// What the reader may do: who only reads is shown nothing that would be refused.
function showScope(scope) {
  document.body.dataset.scope = scope;
  composer.mayTalk(scope !== "read");
}

let lostAt = 0;
let telling = null;
function showConnection(state, detail = {}) {
  clearInterval(telling);
  document.body.classList.toggle("away", state !== "open" && lostAt > 0);
  if (state === "open") {
    if (lostAt) { say("Connected again."); notice("Connected again. Nothing was lost.", { key: "connection", lasts: 2500 }); }
    lostAt = 0;
  } else if (state === "offline") {
    lostAt ||= now();
    notice("This device is offline. The agent continues; the page will catch up.", { kind: "warning", key: "connection" });
  } else if (state === "waiting") {
    if (!lostAt) say("The connection was lost. Trying again.", true);
    lostAt ||= now();
    const tell = () => {
      const seconds = Math.max(0, Math.ceil((detail.until - now()) / 1000));
      const retry = element("button", { type: "button", class: "quiet", onclick: () => conversation?.connection.retry() }, "Try now");
      notice(`The connection was lost${detail.why ? ` (${detail.why})` : ""}. The agent goes on. Trying again${seconds ? ` in ${seconds} s` : ""} …`, { kind: "warning", key: "connection", action: retry });
    };
    tell();
    telling = setInterval(tell, 1000);
  } else if (!lostAt) removeNotice("connection");
}

// --- commands of the page ---

async function rename(name) {
  try { await conversation.ask("set_session_name", { name }); sessions.load().catch(() => {}); } catch (error) { notice(error.message, { kind: "error" }); }
}

function askName() {
  const input = element("input", { type: "text", "aria-label": "Name", value: conversation.state.sessionName ?? "" });
  const opened = openWindow("Name of this session", element("form", { class: "chooser", onsubmit: (event) => { event.preventDefault(); opened.close(); rename(input.value); } },
    input, element("footer", {}, element("button", { type: "submit", class: "first" }, "Rename"))));
  input.select();
}

function askDelete() {
  const { id } = conversation;
  const gone = async () => {
    opened.close();
    try { await request(`/api/sessions/${encodeURIComponent(id)}`, { method: "DELETE" }); } catch (error) { return void notice(error.message, { kind: "error" }); }
    if (conversation?.id === id) await show(null);
    await sessions.load().catch(() => {});
    if (!conversation) showStart();
    notice("The session was moved to the trash. \u201cpigeon sessions undelete\u201d restores it.", { lasts: 10000 });
  };
  const opened = openWindow("Delete this session?", element("p", {}, `\u201c${titleOf()}\u201d is moved to the trash of sessions. Files that the agent has changed stay as they are.`),
    element("div", { class: "answers" }, element("button", { type: "button", class: "deny", onclick: gone }, "Delete"), element("button", { type: "button", onclick: () => opened.close() }, "Keep")));
}

async function compact(rest) {
  try { await conversation.ask("compact", rest ? { customInstructions: rest } : {}); } catch (error) { if (!conversation?.explained?.endsWith(error.message)) notice(error.message, { kind: "warning", key: "compaction" }); }
}

async function branches() {
  try { await showBranches(conversation, (entry) => goTo(conversation, composer, entry)); } catch (error) { notice(error.message, { kind: "error" }); }
}

async function review() {
  const shown = conversation;
  try {
    const [{ Review }] = await Promise.all([import("./review.js"), shown.refreshChanges()]);
    if (conversation === shown && !document.querySelector("dialog[open]")) reviewed = new Review(shown, (entry) => shown.show(entry));
  } catch (error) { notice(error.message, { kind: "error" }); }
}

// --- the list on narrow screens ---

function openSide() {
  document.body.classList.add("side-open");
  byId("open-side").setAttribute("aria-expanded", "true");
  byId("filter").focus();
}

function closeSide() {
  if (!document.body.classList.contains("side-open")) return;
  document.body.classList.remove("side-open");
  byId("open-side").setAttribute("aria-expanded", "false");
  byId("open-side").focus();
}

// --- listeners ---

const inMenu = (run) => () => { byId("menu").open = false; run(); };
byId("open-side").addEventListener("click", openSide);
byId("close-side").addEventListener("click", closeSide);
byId("main").addEventListener("pointerdown", (event) => { if (!event.target.closest("#open-side")) closeSide(); });
byId("find").addEventListener("click", () => search.open(conversation));
byId("branches").addEventListener("click", branches);
byId("review").addEventListener("click", review);
byId("changes").addEventListener("click", (event) => { if (event.target.closest(".review-all")) review(); });
byId("menu-find").addEventListener("click", inMenu(() => search.open(conversation)));
byId("menu-branches").addEventListener("click", inMenu(branches));
byId("rename").addEventListener("click", inMenu(askName));
byId("compact").addEventListener("click", inMenu(() => compact("")));
byId("menu-agents").addEventListener("click", inMenu(() => openAgents()));
byId("background").addEventListener("click", () => conversation?.sendToBackground());
byId("export").addEventListener("click", inMenu(exportPage));
byId("menu-help").addEventListener("click", inMenu(showHelp));
byId("delete").addEventListener("click", inMenu(askDelete));
byId("notify").addEventListener("click", inMenu(() => attention.toggle()));
byId("only-talk").addEventListener("click", inMenu(() => {
  const hidden = byId("scroll").classList.toggle("only-talk");
  byId("only-talk").textContent = hidden ? "Show thinking and tools" : "Hide thinking and tools";
  conversation?.follow();
}));
byId("theme").value = document.documentElement.dataset.theme ?? "";
byId("theme").addEventListener("change", (event) => {
  const theme = event.target.value;
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  keep("localStorage", "pigeon-theme", theme);
});
byId("show-help").addEventListener("click", showHelp);
byId("newest").addEventListener("click", () => conversation?.toNewest());
byId("entries").addEventListener("click", (event) => {
  const back = event.target.closest("button.back");
  if (back) goTo(conversation, composer, back.dataset.entry);
});
document.addEventListener("click", (event) => { if (!event.target.closest("#menu")) byId("menu").open = false; });

const withAlt = {
  KeyK: () => { openSide(); byId("filter").select(); }, KeyN: () => sessions.chooseFolder(), KeyF: () => conversation && search.open(conversation),
  KeyB: () => conversation && branches(), KeyC: () => conversation && review(), KeyA: () => conversation && openAgents(), KeyG: () => conversation?.sendToBackground(), KeyM: () => composer.chooseModel(), KeyT: () => byId("thinking").focus(),
  KeyJ: () => conversation?.toNewest(), KeyI: () => composer.focus(),
};
document.addEventListener("keydown", (event) => {
  // What is pressed while letters are put together (Japanese, Chinese) belongs to them.
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.altKey && !event.ctrlKey && !event.metaKey) {
    if (has(withAlt, event.code)) { withAlt[event.code](); event.preventDefault(); }
  } else if (event.key === "Escape") {
    if (byId("menu").open) { byId("menu").open = false; byId("menu").querySelector("summary").focus(); }
    else if (document.body.classList.contains("side-open")) closeSide();
    else if (!questions.decline()) composer.stop();
  } else if (!typing() && !event.ctrlKey && !event.metaKey && event.key === "?") {
    event.preventDefault();
    showHelp();
  }
});
addEventListener("popstate", () => show(wanted(), false));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  showTitle();
  sessions.load().catch(() => {});
  if (conversation?.connection.isOpen) { conversation.refresh(); conversation.refreshState().catch(() => {}); }
});

const wanted = () => new URLSearchParams(location.search).get("session");

sessions.load().then(() => (conversation ? showTitle() : showStart())).catch((error) => refused(error));
show(wanted(), false);
