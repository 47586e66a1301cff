// Small things that all parts of the page use: elements, times, words for screen readers, requests.

export const byId = (id) => document.getElementById(id);

// An element with properties, listeners (`onclick`) and children. Text is set as text, never as HTML.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (key === "data") Object.assign(made.dataset, value);
    else if (key in made && !key.startsWith("aria")) made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false).map((child) => (typeof child === "string" ? ordered(child) : child)));
  return made;
}

// A text without what turns the order of its characters around, so that nothing passes for something else.
export const ordered = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, numbered);

// A name or a path: whatever is not seen of it is shown by its number. What joins letters may stand between letters that know it.
export const named = (text) => text.replace(/[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e01ef}]|(?<![^\0-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\0-\x7f])/gu, numbered);
const numbered = (one) => `[U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;

// Said by screen readers when they are free, or at once. Single deltas are never said.
export function say(text, urgent = false) {
  const place = byId(urgent ? "urgent" : "said");
  place.textContent = "";
  requestAnimationFrame(() => { place.textContent = text; });
}

// A line at the top; one with the same key replaces the last one. `kind` is info, warning or error.
export function notice(text, { kind = "info", key = text, action = null, lasts = 0 } = {}) {
  const place = byId("notices");
  const old = [...place.children].find((one) => one.dataset.key === key);
  const close = element("button", { class: "quiet", type: "button", "aria-label": "Close this notice", onclick: () => made.remove() }, "✕");
  const made = element("div", { class: `notice ${kind}`, data: { key } }, element("span", {}, text), action, close);
  if (old) old.replaceWith(made); else place.append(made);
  while (place.children.length > 4) place.firstChild.remove();
  if (lasts) setTimeout(() => made.remove(), lasts);
  return made;
}

export function removeNotice(key) {
  for (const one of [...byId("notices").children]) if (one.dataset.key === key) one.remove();
}

// The half of the secret that our page keeps; the other half is a cookie, which the browser sends to every port of this host.
// The link that let this browser in has brought it behind the #.
const KEY = "pigeon-page-key";
let pageKey = kept("localStorage", KEY);
const brought = /^#key=(\w+)$/.exec(location.hash);
if (brought) {
  pageKey = brought[1];
  keep("localStorage", KEY, pageKey);
  history.replaceState(null, "", location.pathname + location.search);
}

// A socket to this server. It can have no headers, so the key is one of the subprotocols that it offers.
export function openSocket(path) {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return new WebSocket(`${scheme}//${location.host}${path}`, ["pigeon", `${KEY}.${currentKey()}`]);
}

// A link opened in another tab has replaced the cookie as well as what is kept.
const currentKey = () => kept("localStorage", KEY) || pageKey;

function send(path, options) {
  const headers = { "Pigeon-Page-Key": currentKey(), ...(options.body ? { "Content-Type": "application/json" } : {}) };
  return fetch(path, {
    method: options.method ?? "GET", credentials: "same-origin", cache: "no-store", headers,
    body: options.body ? JSON.stringify(options.body) : undefined,
  });
}

// Have the browser save what this server answers; throws like `request`.
export async function download(path, name) {
  const response = await send(path, {});
  if (!response.ok) throw await failureOf(response);
  const address = URL.createObjectURL(await response.blob());
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

// A request to this server; throws an Error with the sentence that the server gave, and `status`.
export async function request(path, options = {}) {
  const response = await send(path, options);
  if (!response.ok) throw await failureOf(response);
  return valueOf(await response.text());
}

// What a text in JSON says, or null if it is something else.
function valueOf(text) {
  try { return text ? JSON.parse(text) : null; } catch { return null; }
}

async function failureOf(response) {
  const value = valueOf(await response.text());
  const problem = value?.error;
  const error = new Error(typeof problem === "string" ? problem : problem?.message ?? `The server answered ${response.status}`);
  error.status = response.status;
  return error;
}

export function timeAgo(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  if (seconds < 7 * 86400) return `${Math.floor(seconds / 86400)} d`;
  return new Date(iso).toLocaleDateString();
}

export const baseName = (path) => path.replace(/\/+$/, "").split("/").pop() || path;

export const typing = () => document.activeElement?.matches("input, textarea, select, [contenteditable]") ?? false;

// Times that are compared with each other come from here: unlike the time of day, it never jumps.
export const now = () => performance.now();

export const has = Object.hasOwn;

// What the browser keeps (`localStorage`, or `sessionStorage` for one tab), where it may keep anything.
export function kept(where, key) { try { return globalThis[where].getItem(key) ?? ""; } catch { return ""; } }
export function keep(where, key, text) { try { globalThis[where].setItem(key, text); } catch { /* full, or not allowed */ } }

// Put a text into the clipboard. Without TLS a browser has the old way only.
export async function copyText(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* the old way */ }
  const before = document.activeElement;
  const box = element("textarea", { value: text, class: "unseen", readOnly: true });
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  before?.focus?.();
  return done;
}

// A modal window: keeps the focus inside, closes with Escape, gives the focus back.
export function openWindow(title, ...content) {
  const before = document.activeElement;
  const head = element("header", {}, element("h2", { id: "window-title" }, title),
    element("button", { class: "quiet", type: "button", "aria-label": "Close", onclick: () => made.close() }, "✕"));
  const made = element("dialog", { class: "window", "aria-labelledby": "window-title" }, head, ...content);
  // The event comes with a later frame: what has been focused meanwhile keeps the keys.
  made.addEventListener("close", () => { made.remove(); if (document.activeElement === document.body) before?.focus?.(); });
  made.addEventListener("click", (event) => { if (event.target === made) made.close(); });
  document.body.append(made);
  made.showModal();
  return made;
}

// Milliseconds as a person says them.
export function spanOf(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}
