// The socket of one conversation: commands with their answers, events by their numbers, and coming back by itself.
//
// Each event has a number (`seq`). A socket that breaks is opened again with the number of the last event that was seen,
// so nothing is lost and nothing comes twice. What was asked and not answered is asked again if that can do no harm: what
// does the same when it is done twice, and messages, which have an id under which the server takes them once.

import { REPEATABLE } from "./commands.js";
import { now, openSocket, request } from "./dom.js";

// The code with which a frame that is too long ends a socket, and how often a record is sent that was not answered.
const TOO_LONG = 1009;
const MOST_SENT = 5;
const FIRST_WAIT = 300;
const LONGEST_WAIT = 10000;
const SILENCE = 30000;

export class Connection {
  // `on` has event(record), state(name, detail), back() after a reconnection, refused(error) when it makes no sense to go on.
  constructor(id, on) {
    this.id = id;
    this.on = on;
    this.last = null;
    this.waiting = new Map();
    this.count = 0;
    this.attempt = 0;
    this.opened = false;
    this.closed = false;
    this.heard = 0;
    this.retry = () => { if (this.timer) this._connect(); };
    this.gone = () => this.on.state("offline");
    this.seen = () => { if (!document.hidden) this._probe(); };
    addEventListener("online", this.retry);
    addEventListener("offline", this.gone);
    document.addEventListener("visibilitychange", this.seen);
    this.probing = setInterval(() => this._probe(), SILENCE / 2);
  }

  // Begin behind an event; null for what comes from now on.
  open(after) {
    this.last = after;
    this._connect();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    clearInterval(this.probing);
    removeEventListener("online", this.retry);
    removeEventListener("offline", this.gone);
    document.removeEventListener("visibilitychange", this.seen);
    this.socket?.close();
    this._giveUp("The page has switched to another session");
  }

  // A command, and a promise of its data.
  ask(type, members = {}) {
    const id = `p${++this.count}`;
    const record = { id, type, ...members };
    return new Promise((done, failed) => {
      const again = REPEATABLE.has(type) || "clientMessageId" in record;
      this.waiting.set(id, { record, done, failed, again, sent: 1 });
      this._send(record);
    });
  }

  // A record that is not answered.
  tell(record) {
    this._send(record);
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  _send(record) {
    if (this.isOpen) this.socket.send(JSON.stringify(record));
  }

  _connect() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.closed) return;
    this.on.state("connecting");
    const after = this.last === null ? "" : `?after=${this.last}`;
    const socket = openSocket(`/api/sessions/${encodeURIComponent(this.id)}/rpc${after}`);
    this.socket = socket;
    socket.onopen = () => this._connected();
    socket.onmessage = (message) => this._take(message.data);
    socket.onclose = (event) => { if (socket === this.socket) this._lost(event); };
  }

  _connected() {
    this.attempt = 0;
    this.heard = now();
    this.on.state("open");
    for (const [id, waiting] of [...this.waiting]) {
      if (waiting.sent++ < MOST_SENT) this._send(waiting.record);
      else this._fail(id, "The connection broke each time this was sent");
    }
    if (this.opened) this.on.back();
    this.opened = true;
  }

  _take(line) {
    this.heard = now();
    const record = JSON.parse(line);
    if (record.type === "response") {
      const waiting = this.waiting.get(record.id);
      if (!waiting) return;
      this.waiting.delete(record.id);
      if (record.success) waiting.done(record.data);
      else waiting.failed(new Error(record.error));
      return;
    }
    if (record.type === "gap") this.last = record.snapshot?.seq ?? this.last;
    else if (typeof record.seq === "number") this.last = Math.max(this.last ?? 0, record.seq);
    this.on.event(record);
  }

  async _lost(event) {
    if (this.closed) return;
    for (const [id, { record, again }] of [...this.waiting]) {
      if (event.code === TOO_LONG && "clientMessageId" in record) this._fail(id, "This message, with its images, is larger than the server accepts");
      else if (!again) this._fail(id, "The connection was lost before this was answered. Check whether it was done before you try again");
    }
    if (event.code === 4004) return this._refuse(Object.assign(new Error(event.reason || "There is no such session"), { status: 404 }));
    // A refusal before the socket opens has no code here, so the same is asked by HTTP, which tells the reason.
    if (!this.opened || this.attempt > 0) {
      try {
        await request(`/api/sessions/${encodeURIComponent(this.id)}`);
      } catch (error) {
        if ([401, 403, 404].includes(error.status)) return this._refuse(error);
      }
    }
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.attempt++) * (0.75 + Math.random() / 2);
    this.timer = setTimeout(() => this._connect(), wait);
    this.on.state(navigator.onLine ? "waiting" : "offline", { until: now() + wait, why: event.reason });
  }

  _refuse(error) {
    this.closed = true;
    this._giveUp(error.message);
    this.on.refused(error);
  }

  _fail(id, why) {
    const { failed } = this.waiting.get(id);
    this.waiting.delete(id);
    failed(new Error(why));
  }

  _giveUp(why) {
    for (const { failed } of this.waiting.values()) failed(new Error(why));
    this.waiting.clear();
  }

  // A socket can be dead without a word, as after sleep. `hello` is answered by the server itself, and wakes no agent.
  async _probe() {
    if (!this.isOpen || document.hidden || now() - this.heard < SILENCE) return;
    const socket = this.socket;
    const timer = setTimeout(() => {
      if (socket !== this.socket) return;
      socket.onclose = null;
      socket.close();
      this._lost({ code: 1006, reason: "" });
    }, 8000);
    try { await this.ask("hello"); } catch { /* the time-out decides */ }
    clearTimeout(timer);
  }
}
