// The page as a whole: which session is shown, the bar above it, keys, and what other tabs say.

import { baseName, byId, element, notice, openWindow, removeNotice, say, typing } from "./dom.js";
import { Conversation } from "./conversation.js";
import { Composer } from "./composer.js";
import { Questions } from "./questions.js";
import { Sessions } from "./sessions.js";
import { goTo, Search, showBranches, showHelp } from "./panels.js";

// Tabs of one browser tell each other what no event tells: another branch, another model.
const tabs = new BroadcastChannel("pigeon");
let conversation = null;

const commands = {
  new: { about: "a new session", run: () => sessions.chooseFolder() },
  name: { about: "name this session", run: (name) => (name ? rename(name) : askName()) },
  compact: { about: "make room in the context", run: (rest) => compact(rest) },
  search: { about: "search this conversation", run: () => search.open(conversation) },
  branches: { about: "go to another branch", run: () => branches() },
  export: { about: "this conversation as a page", run: () => byId("export").click() },
  help: { about: "keyboard shortcuts", run: showHelp },
};
const composer = new Composer(commands);
const search = new Search();
const sessions = new Sessions((id) => show(id));
const questions = new Questions(() => composer.focus(), (open) => { showTitle(); conversation?.asks(open > 0); });

// --- which session ---

async function show(id, push = true) {
  if (push) history.pushState(null, "", id ? `/?session=${encodeURIComponent(id)}` : "/");
  closeSide();
  if (conversation?.id === id) return composer.focus();
  conversation?.close();
  conversation = null;
  byId("notices").replaceChildren();
  byId("search").hidden = true;
  sessions.select(id, sessions.about);
  if (!id) return showStart();
  byId("start").hidden = true;
  byId("tools").hidden = false;
  const made = new Conversation(id, {
    changed: (what) => { if (conversation === made) changed(what); },
    question: (record) => questions.take(record),
    answered: (question) => questions.close(question),
    editor: (text) => composer.setText(text),
    connection: showConnection,
    refused: (error) => refused(error),
  });
  made.tellOthers = () => tabs.postMessage({ session: id });
  made.reload = () => made._reload();
  conversation = made;
  questions.use(made);
  composer.use(made);
  byId("export").href = `/api/sessions/${encodeURIComponent(id)}/export`;
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
  byId("start").replaceChildren(element("h2", {}, "What shall we work on?"),
    element("p", {}, "Start a session in a folder, or go on with one."),
    element("button", { type: "button", class: "first", onclick: () => sessions.chooseFolder() }, "Start a session"),
    element("ul", { class: "recent-sessions" }, ...sessions.recent()));
  showTitle();
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
  if (what === "entries" || what === "running") showEmpty();
  if (what === "running") sessions.load().then(showTitle).catch(() => {});
}

function showEmpty() {
  const empty = conversation.atEnd && !conversation.running && !conversation.page?.moreBefore && !byId("entries").querySelector("article") && !byId("live").children.length;
  byId("start").hidden = !empty;
  if (empty) byId("start").replaceChildren(element("h2", {}, "A new session"), element("p", {}, `The agent works in ${conversation.folder ?? "its folder"}. Say what it shall do.`));
}

function showTitle() {
  const row = sessions.rows.find((one) => one.id === conversation?.id);
  const name = conversation ? conversation.state.sessionName || row?.name || row?.firstMessage || "New session" : "Pigeon";
  const mark = questions.open.size ? "(?) " : conversation?.running ? "● " : "";
  byId("title").textContent = name;
  byId("folder").textContent = conversation?.folder ?? "";
  document.title = conversation ? `${mark}${name} · Pigeon` : "Pigeon";
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
    lostAt ||= Date.now();
    notice("This device is offline. The agent goes on; the page will catch up.", { kind: "warning", key: "connection" });
  } else if (state === "waiting") {
    if (!lostAt) say("The connection was lost. Trying again.", true);
    lostAt ||= Date.now();
    const tell = () => {
      const seconds = Math.max(0, Math.ceil((detail.until - Date.now()) / 1000));
      const now = element("button", { type: "button", class: "quiet", onclick: () => conversation?.connection.retry() }, "Try now");
      notice(`The connection was lost${detail.why ? ` (${detail.why})` : ""}. The agent goes on. Trying again${seconds ? ` in ${seconds} s` : ""} …`, { kind: "warning", key: "connection", action: now });
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

async function compact(rest) {
  try { await conversation.ask("compact", rest ? { customInstructions: rest } : {}); } catch (error) { notice(error.message, { kind: "warning" }); }
}

async function branches() {
  try { await showBranches(conversation, (entry) => goTo(conversation, composer, entry)); } catch (error) { notice(error.message, { kind: "error" }); }
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
byId("menu-find").addEventListener("click", inMenu(() => search.open(conversation)));
byId("menu-branches").addEventListener("click", inMenu(branches));
byId("rename").addEventListener("click", inMenu(askName));
byId("compact").addEventListener("click", inMenu(() => compact("")));
byId("export").addEventListener("click", inMenu(() => {}));
byId("menu-help").addEventListener("click", inMenu(showHelp));
byId("show-help").addEventListener("click", showHelp);
byId("newest").addEventListener("click", () => conversation?.toNewest());
byId("entries").addEventListener("click", (event) => {
  const back = event.target.closest("button.back");
  if (back) goTo(conversation, composer, back.dataset.entry);
});
document.addEventListener("click", (event) => { if (!event.target.closest("#menu")) byId("menu").open = false; });

const withAlt = {
  KeyK: () => { openSide(); byId("filter").select(); }, KeyN: () => sessions.chooseFolder(), KeyF: () => conversation && search.open(conversation),
  KeyB: () => conversation && branches(), KeyM: () => byId("model").focus(), KeyT: () => byId("thinking").focus(),
  KeyJ: () => conversation?.toNewest(), KeyI: () => composer.focus(),
};
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (questions.isStray(event)) return event.preventDefault();
  if (event.altKey && !event.ctrlKey && !event.metaKey) {
    const digit = /^Digit([1-9])$/.exec(event.code)?.[1];
    if (digit ? questions.key(digit, event.repeat) : withAlt[event.code] && (withAlt[event.code](), true)) event.preventDefault();
  } else if (event.key === "Escape") {
    if (byId("menu").open) { byId("menu").open = false; byId("menu").querySelector("summary").focus(); }
    else if (document.body.classList.contains("side-open")) closeSide();
    else composer.stop();
  } else if (!typing() && !event.ctrlKey && !event.metaKey) {
    if (event.key === "?") { event.preventDefault(); showHelp(); }
    else if (/^[1-9]$/.test(event.key) && questions.key(event.key, event.repeat)) event.preventDefault();
  }
});
addEventListener("popstate", () => show(asked(), false));
tabs.addEventListener("message", (event) => { if (event.data?.session === conversation?.id) conversation._reload().catch(() => {}); });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  sessions.load().catch(() => {});
  if (conversation?.connection.isOpen) { conversation.refresh(); conversation.refreshState().catch(() => {}); }
});

const asked = () => new URLSearchParams(location.search).get("session");

sessions.load().then(() => (conversation ? showTitle() : showStart())).catch((error) => refused(error));
show(asked(), false);
