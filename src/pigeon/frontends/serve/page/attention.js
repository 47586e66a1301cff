// How the reader learns what happens while another tab is in front: the title of this one, and notifications if they are wanted.

import { byId, keep, kept, notice } from "./dom.js";

const WANTED = "pigeon-notify";

export class Attention {
  constructor() {
    this.wanted = kept("localStorage", WANTED) === "true" && globalThis.Notification?.permission === "granted";
    this.missed = false;
    this.button = byId("notify");
    this.button.hidden = !("Notification" in globalThis);
    this._show();
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.missed = false; });
  }

  // Called by a click: browsers ask the reader only then.
  async toggle() {
    if (this.wanted) this.wanted = false;
    else {
      this.wanted = (await Notification.requestPermission()) === "granted";
      if (!this.wanted) notice("The browser does not let this page notify you. Change its settings for this site", { kind: "warning", key: "notify" });
    }
    keep("localStorage", WANTED, String(this.wanted));
    this._show();
  }

  // Something that a reader who looks elsewhere may want to know. Says what it is about, never what was said.
  tell(session, name, what) {
    if (!document.hidden) return;
    this.missed = true;
    if (!this.wanted) return;
    try {
      const made = new Notification(what, { body: name, tag: session });
      made.onclick = () => { focus(); made.close(); };
    } catch { /* some browsers only let service workers notify */ }
  }

  title(name, { asks, running }) {
    const mark = asks ? "(?) " : running ? "● " : this.missed ? "✓ " : "";
    document.title = name ? `${mark}${name} · Pigeon` : "Pigeon";
  }

  _show() {
    this.button.textContent = this.wanted ? "Do not notify me" : "Notify me";
  }
}
