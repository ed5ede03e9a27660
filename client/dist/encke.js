// The client of Encke: built from client/src by client/build.mjs. MIT or Apache-2.0.

// src/wire.ts
function wordOf(envelope) {
  if (!isRecord(envelope)) return void 0;
  switch (envelope["op"]) {
    case "gap":
      return gapOf(envelope);
    case "ok":
    case "error":
      return answerOf(envelope);
    case void 0:
    case "message":
      return messageOf(envelope);
    default:
      return void 0;
  }
}
function wordOfEvent(event) {
  if (event.data === void 0) {
    return event.id === void 0 ? void 0 : { kind: "position", id: event.id };
  }
  const value = parsed(event.data);
  if (event.event === "encke.gap") return isRecord(value) ? gapOf(value) : void 0;
  return wordOf(value);
}
function messageOf(envelope) {
  const id = text(envelope["id"]);
  const channel = text(envelope["channel"]);
  const data = payloadOf(envelope);
  if (id === void 0 || channel === void 0 || data === void 0) return void 0;
  const message = { id, channel, data };
  const event = text(envelope["event"]);
  const type = text(envelope["type"]);
  const time = timeOf(envelope["time"]);
  if (event !== void 0) message.event = event;
  if (type !== void 0) message.type = type;
  if (time !== void 0) message.time = time;
  return { kind: "message", message };
}
function payloadOf(envelope) {
  const { data, data64 } = envelope;
  if (typeof data64 === "string") return bytesOf(data64);
  return text(data);
}
function gapOf(envelope) {
  const from = text(envelope["from"]) ?? "";
  const to = text(envelope["to"]);
  const reason = text(envelope["reason"]);
  if (to === void 0) return void 0;
  return { kind: "gap", gap: reason === void 0 ? { from, to } : { from, to, reason } };
}
function answerOf(envelope) {
  const answer = { kind: "answer" };
  const id = text(envelope["id"]);
  const said = text(envelope["text"]);
  if (id !== void 0) answer.id = id;
  if (said !== void 0) answer.text = said;
  if (envelope["op"] === "error") answer.status = Number(envelope["status"]) || 400;
  return answer;
}
function timeOf(value) {
  if (typeof value !== "string" && typeof value !== "number") return void 0;
  const time = new Date(value);
  return Number.isNaN(time.getTime()) ? void 0 : time;
}
function bytesOf(base64) {
  try {
    return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  } catch {
    return void 0;
  }
}
function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return void 0;
  }
}
function text(value) {
  return typeof value === "string" ? value : void 0;
}
function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
function ahead(id, of) {
  const others = new Map(of.split(",").map(partsOf));
  const leads = id.split(",").map((position) => {
    const [epoch, offset] = partsOf(position);
    return offset - (others.get(epoch) ?? -Infinity);
  });
  return Math.max(...leads);
}
function isId(since) {
  return /-\d+$/.test(since);
}
function partsOf(id) {
  const dash = id.lastIndexOf("-");
  return [id.slice(0, dash), Number(id.slice(dash + 1))];
}
var EventStream = class {
  constructor(onEvent, onRetry) {
    this.onEvent = onEvent;
    this.onRetry = onRetry;
  }
  onEvent;
  onRetry;
  rest = "";
  begun = false;
  afterCr = false;
  lines = [];
  event;
  id;
  push(piece) {
    if (piece === "") return;
    const skip = this.afterCr && piece.startsWith("\n") || !this.begun && piece.startsWith("\uFEFF") ? 1 : 0;
    this.begun = true;
    this.afterCr = piece.endsWith("\r");
    const lines = (this.rest + piece.slice(skip)).split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.line(line);
  }
  line(line) {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.lines.push(value);
    else if (field === "event") this.event = value;
    else if (field === "id" && !value.includes("\0")) this.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.onRetry(Number(value));
  }
  dispatch() {
    const event = {};
    if (this.id !== void 0) event.id = this.id;
    if (this.event) event.event = this.event;
    if (this.lines.length > 0) event.data = this.lines.join("\n");
    this.lines = [];
    this.event = void 0;
    this.id = void 0;
    if (event.id !== void 0 || event.data !== void 0) this.onEvent(event);
  }
};

// src/transports.ts
var TRANSPORTS = ["sse", "ws", "poll"];
var POLL_WAIT_S = 25;
var ASK_AFTER_MS = 25e3;
var GOING_AWAY = [1001, 1012, 1013];
var attempts = { sse, ws, poll };
function addressOf(url, channels, query) {
  const given = Object.entries(query).filter((pair) => pair[1] !== void 0);
  const search = given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  return `${url}${channels.join(",")}${search && "?"}${search}`;
}
function fieldsOf(accept, token) {
  return token === void 0 ? { accept } : { accept, authorization: `Bearer ${token}` };
}
async function sse(attempt) {
  const { world: world2, url, channels, since, name, token, signal } = attempt;
  const answer = await world2.fetch(addressOf(url, channels, { since, name, envelope: "" }), {
    headers: fieldsOf("text/event-stream", token),
    cache: "no-store",
    signal
  });
  if (answer.status !== 200) return endOf(answer);
  if (!answer.body || !answer.headers.get("content-type")?.startsWith("text/event-stream")) return { why: "unable" };
  let retryMs;
  const stream = new EventStream(
    (event) => {
      const word = wordOfEvent(event);
      if (word) say(attempt, word);
    },
    (ms) => retryMs = ms
  );
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const reader = answer.body.getReader();
  for (; ; ) {
    const { done, value } = await reader.read().catch(() => ({ done: true, value: void 0 }));
    if (done || !value) return { why: "over", retryMs };
    attempt.heard();
    stream.push(decoder.decode(value, { stream: true }));
  }
}
function say(attempt, word) {
  if (word.kind !== "position" || !isId(attempt.since)) attempt.say(word);
}
function ws(attempt) {
  const { world: world2, url, channels, since, name, token, signal } = attempt;
  const address = addressOf(url.replace(/^http/, "ws"), channels, { since, name, access_token: token });
  let socket;
  try {
    socket = world2.socket(address, "encke.v1");
  } catch {
    return Promise.resolve({ why: "unable" });
  }
  return new Promise((resolve) => {
    let opened = false;
    let forget = () => {
    };
    const listen = () => {
      forget();
      forget = world2.later(ASK_AFTER_MS, () => {
        if (opened) socket.send('{"op":"ping","ref":0}');
      });
    };
    const end = (end2) => {
      forget();
      signal.removeEventListener("abort", leave);
      resolve(end2);
    };
    const leave = () => {
      socket.close();
      end({ why: "over" });
    };
    signal.addEventListener("abort", leave);
    socket.onopen = () => {
      opened = true;
      listen();
    };
    socket.onmessage = ({ data }) => {
      listen();
      attempt.heard();
      const word = wordOf(parsed(String(data)));
      if (word?.kind === "answer" && word.id !== void 0) say(attempt, { kind: "position", id: word.id });
      else if (word && word.kind !== "answer") say(attempt, word);
    };
    socket.onclose = ({ code, reason }) => {
      if (!opened) return end({ why: "unable" });
      if (code === 4401) return end({ why: "token" });
      if (code === 4403) return end({ why: "denied", status: 403 });
      const ms = /\d+/.exec(reason)?.[0];
      end({ why: "over", retryMs: GOING_AWAY.includes(code) && ms ? Number(ms) : void 0 });
    };
  });
}
async function poll(attempt) {
  let since = attempt.since;
  for (let wait = 0; ; wait = POLL_WAIT_S) {
    const batch = await batchOf(attempt, attempt.channels, since, wait);
    if ("why" in batch) return batch;
    attempt.heard();
    for (const word of batch.words) attempt.say(word);
    since = batch.next;
    if (attempt.signal.aborted) return { why: "over" };
  }
}
async function batchOf(attempt, channels, since, wait) {
  const { world: world2, url, name, token, signal } = attempt;
  const answer = await world2.fetch(addressOf(url, channels, { since, wait: String(wait), name }), {
    headers: fieldsOf("application/json", token),
    cache: "no-store",
    signal
  });
  const said = answer.headers.get("encke-id");
  if (answer.status === 204) {
    const words2 = said === null ? [] : [{ kind: "position", id: said }];
    return { words: words2, next: said ?? since, more: false };
  }
  if (answer.status !== 200) return endOf(answer);
  const body = parsed(await answer.text());
  if (!isRecord(body) || !Array.isArray(body["messages"])) return { why: "unable" };
  const words = body["messages"].map(wordOf).filter((word) => word !== void 0);
  const gap = wordOf(body["gap"]);
  if (gap) words.unshift(gap);
  const next = typeof body["next"] === "string" ? body["next"] : since;
  if (next !== since) words.push({ kind: "position", id: next });
  return { words, next, more: Number(body["more"]) > 0 };
}
function endOf(answer) {
  const { status } = answer;
  void answer.body?.cancel().catch(() => {
  });
  if (status === 401) return { why: "token" };
  const passing = status >= 500 || status === 408 || status === 425 || status === 429;
  if (status >= 400 && !passing) return { why: "denied", status };
  return { why: "over", retryMs: retryAfterMs(answer.headers.get("retry-after")) };
}
function retryAfterMs(value) {
  return value !== null && /^\d+$/.test(value) ? Number(value) * 1e3 : void 0;
}

// src/line.ts
var FIRST_BYTE_MS = 5e3;
var DEAD_MS = 6e4;
var FRESH_MS = 3e4;
var RETRY_MS = 2e3;
var RETRY_MS_MAX = 3e4;
var STRIKES = 3;
var CATCH_UP_MS = 2e4;
var Line = class {
  constructor(world2, settings, token, onCondition) {
    this.world = world2;
    this.settings = settings;
    this.token = token;
    this.onCondition = onCondition;
    this.ladder = settings.transport ? [settings.transport] : TRANSPORTS;
    const remembered = world2.recall(settings.url);
    this.proven = this.ladder.find((transport) => transport === remembered);
    this.transport = this.proven ?? this.top;
    this.condition = { state: "closed", transport: this.transport };
  }
  world;
  settings;
  token;
  onCondition;
  parts = [];
  running = false;
  changing = false;
  /** The channels of the current attempt. */
  asked = "";
  abort = () => {
  };
  endPause = () => {
  };
  heardAt = 0;
  condition;
  ladder;
  transport;
  /** The transport that has worked, here or earlier in this tab. */
  proven;
  strikes = 0;
  failures = 0;
  get state() {
    return this.condition;
  }
  add(reader) {
    const [live] = this.parts;
    if (live && this.condition.state === "open" && reader.since === "now" && this.carries(reader)) {
      reader.since = live.since;
      live.readers.add(reader);
      return;
    }
    const part = this.parts.find((part2) => !part2.asked && part2.since === reader.since);
    if (part) part.readers.add(reader);
    else this.parts.push({ since: reader.since, asked: false, readers: /* @__PURE__ */ new Set([reader]) });
    this.change();
  }
  remove(reader) {
    for (const part of this.parts) part.readers.delete(reader);
    this.parts = this.parts.filter((part) => part.readers.size > 0);
    this.change();
  }
  /** Handles a network change, or a page that became visible: timers may have been suspended. */
  wake(why) {
    this.endPause();
    const stale = this.world.now() - this.heardAt > FRESH_MS;
    if (this.condition.state === "open" && (why === "online" || stale)) this.abort("woken");
  }
  /** Applies additions and removals of readers, once per turn. */
  change() {
    if (this.changing) return;
    this.changing = true;
    this.world.later(0, () => {
      this.changing = false;
      if (this.running && this.parts.length === 1 && channelsOf(this.parts).join() === this.asked) return;
      this.abort("changed");
      this.endPause();
      if (!this.running) void this.run();
    });
  }
  async run() {
    this.running = true;
    let refused = false;
    while (this.parts.length > 0) {
      const { end, cause, heard } = await this.attempt(refused);
      if (cause === "changed" || cause === "woken") continue;
      if (end.why === "denied" || end.why === "token" && refused) {
        const status = end.why === "denied" ? end.status : 401;
        this.parts = [];
        this.running = false;
        return this.tell({ state: "denied", transport: this.transport, status });
      }
      refused = end.why === "token";
      if (refused) continue;
      if (this.falls(end, heard)) continue;
      await this.pause(end);
    }
    this.running = false;
    this.tell({ state: "closed", transport: this.transport });
  }
  async attempt(fresh) {
    const abort = new AbortController();
    let cause;
    let heard = false;
    let forget = () => {
    };
    this.abort = (why) => {
      cause ??= why;
      forget();
      abort.abort();
    };
    const expect = (ms, otherwise) => {
      forget();
      forget = this.world.later(ms, () => this.abort(otherwise));
    };
    const run = async () => {
      this.tell({ state: "connecting", transport: this.transport });
      expect(CATCH_UP_MS, "dead");
      const token = await this.token(fresh);
      this.asked = channelsOf(this.parts).join();
      for (const part2 of this.parts) part2.asked = true;
      const attempt = {
        world: this.world,
        url: this.settings.url,
        name: this.settings.name,
        token,
        channels: [],
        since: "",
        signal: abort.signal,
        heard: () => {
          if (abort.signal.aborted) return;
          expect(DEAD_MS, "dead");
          this.heardAt = this.world.now();
          if (!heard) this.opened();
          heard = true;
        },
        say: () => {
        }
      };
      const failed = this.parts.length > 1 ? await this.catchUp(attempt) : void 0;
      const [part] = this.parts;
      if (failed || !part || abort.signal.aborted) return failed ?? { why: "over" };
      attempt.channels = channelsOf([part]);
      attempt.since = part.since;
      attempt.say = (word) => {
        if (!abort.signal.aborted) spread(word, part);
      };
      expect(FIRST_BYTE_MS, "silent");
      return attempts[this.transport](attempt);
    };
    const end = await run().catch(() => ({ why: "over" }));
    forget();
    return { end: cause === "silent" ? { why: "unable" } : end, cause, heard };
  }
  /** Catches up every part, the oldest first, and merges them. */
  async catchUp(attempt) {
    const parts = [...this.parts];
    for (const part of parts) {
      let more = true;
      while (more) {
        const { since: since2 } = part;
        const batch = await batchOf(attempt, channelsOf([part]), since2, 0);
        if ("why" in batch) return batch;
        if (attempt.signal.aborted) return { why: "over" };
        for (const word of batch.words) spread(word, part);
        more = batch.more && batch.next !== since2;
        part.since = batch.next;
      }
    }
    const since = parts[0]?.since ?? "";
    const readers = new Set(parts.flatMap((part) => [...part.readers]));
    const later = this.parts.filter((part) => !parts.includes(part));
    this.parts = [{ since, asked: true, readers }, ...later].filter((part) => part.readers.size > 0);
    return void 0;
  }
  opened() {
    this.failures = 0;
    this.strikes = 0;
    this.proven = this.transport;
    this.world.remember(this.settings.url, this.transport);
    this.tell({ state: "open", transport: this.transport });
  }
  /** Chooses the transport of the next attempt. Returns whether that may follow immediately. */
  falls(end, heard) {
    if (heard) return false;
    if (end.why !== "unable") {
      this.transport = this.proven ?? this.top;
      return false;
    }
    if (this.transport === this.proven && ++this.strikes < STRIKES) return false;
    this.strikes = 0;
    const next = this.ladder[this.ladder.indexOf(this.transport) + 1];
    this.transport = next ?? this.top;
    return next !== void 0;
  }
  pause(end) {
    const wish = end.why === "over" ? end.retryMs : void 0;
    const grown = Math.min(RETRY_MS * 2 ** this.failures++, RETRY_MS_MAX);
    const delayMs = wish === void 0 ? grown * (0.5 + this.world.random()) : wish * (1 + this.world.random() / 2);
    this.tell({ state: "waiting", transport: this.transport, delayMs });
    return new Promise((resolve) => {
      const forget = this.world.later(delayMs, resolve);
      this.endPause = () => {
        forget();
        resolve();
      };
    });
  }
  carries(reader) {
    const asked = this.asked.split(",");
    return this.parts.length === 1 && reader.channels.every((channel) => asked.includes(channel));
  }
  get top() {
    return this.ladder[0] ?? "sse";
  }
  tell(condition) {
    this.condition = condition;
    this.onCondition(condition);
  }
};
function spread(word, part) {
  if (word.kind === "answer") return;
  const id = word.kind === "message" ? word.message.id : word.kind === "gap" ? word.gap.to : word.id;
  part.since = id;
  for (const reader of part.readers) {
    const by = isId(reader.since) ? ahead(id, reader.since) : Infinity;
    if (by < 0 || by === 0 && word.kind !== "gap") continue;
    if (word.kind === "gap") reader.gap(word.gap);
    if (word.kind === "message" && reader.channels.includes(word.message.channel)) reader.take(word.message);
    reader.since = id;
  }
}
function channelsOf(parts) {
  const readers = parts.flatMap((part) => [...part.readers]);
  return [...new Set(readers.flatMap((reader) => reader.channels))].sort();
}

// src/publish.ts
var PublishError = class extends Error {
  constructor(status, text2) {
    super(text2);
    this.status = status;
    this.name = "PublishError";
  }
  status;
};
var REPEAT_MS = 1e5;
var ANSWER_MS = 15e3;
var RETRY_MS2 = 500;
var RETRY_MS_MAX2 = 8e3;
var Outbox = class {
  constructor(world2, url, token) {
    this.world = world2;
    this.url = url;
    this.token = token;
  }
  world;
  url;
  token;
  last = Promise.resolve();
  endPause = () => {
  };
  count = 0;
  /** Publishes after all earlier messages. */
  publish(channel, data, options) {
    const published = this.last.then(() => this.deliver(channel, data, options));
    this.last = published.catch(() => {
    });
    return published;
  }
  /** Ends the wait before a retry: the network is back. */
  wake() {
    this.endPause();
  }
  async deliver(channel, data, options) {
    const key = options.key ?? this.newKey();
    const since = this.world.now();
    let refused = false;
    for (let failures = 0; ; ) {
      const answer = await this.send(channel, data, { ...options, key }, refused).catch(() => void 0);
      if (answer?.ok) {
        const body = parsed(await answer.text().catch(() => ""));
        if (isRecord(body)) return { id: String(body["id"] ?? ""), subscribers: Number(body["subscribers"] ?? 0) };
      }
      const end = answer && endOf(answer.clone());
      if (answer && end?.why === "token" && !refused) {
        refused = true;
        continue;
      }
      const late = this.world.now() - since > REPEAT_MS;
      if (answer && (end?.why !== "over" || late)) throw await failureOf(answer);
      if (late) throw new PublishError(0, "no answer: the server cannot be reached");
      const wish = end?.why === "over" ? end.retryMs : void 0;
      await this.pause(wish ?? Math.min(RETRY_MS2 * 2 ** failures++, RETRY_MS_MAX2) * (0.5 + this.world.random()));
    }
  }
  async send(channel, data, options, fresh) {
    const fields = fieldsOf("application/json", await this.token(fresh));
    fields["idempotency-key"] = options.key ?? "";
    const type = options.type ?? (typeof data === "string" ? "text/plain;charset=utf-8" : "");
    if (type) fields["content-type"] = type;
    if (options.event) fields["encke-event"] = options.event;
    const abort = new AbortController();
    const forget = this.world.later(ANSWER_MS, () => abort.abort());
    const { signal } = abort;
    const url = addressOf(this.url, [channel], {});
    return this.world.fetch(url, { method: "POST", headers: fields, body: data, signal }).finally(forget);
  }
  /** Returns a unique key: 52 random bits, and a count. */
  newKey() {
    return `${this.world.random().toString(36).slice(2)}-${this.count++}`;
  }
  pause(ms) {
    return new Promise((resolve) => {
      const forget = this.world.later(ms, resolve);
      this.endPause = () => {
        forget();
        resolve();
      };
    });
  }
};
async function failureOf(answer) {
  const said = (await answer.text().catch(() => "")).trim().slice(0, 200);
  return new PublishError(answer.status, said || `refused with ${answer.status}`);
}

// src/tabs.ts
var TOKEN_MS = 1e4;
var Counter = class {
  constructor(world2, settings, hasToken) {
    this.world = world2;
    const token = (fresh) => hasToken ? this.askToken(fresh) : Promise.resolve(void 0);
    this.line = new Line(world2, settings, token, (condition) => {
      for (const page of this.pages.values()) page.post({ tell: "condition", condition });
    });
  }
  world;
  pages = /* @__PURE__ */ new Map();
  line;
  answerToken;
  hear(from, ask, post) {
    let page = this.pages.get(from);
    if (!page) {
      if (ask.ask === "bye") return;
      page = { post, readers: /* @__PURE__ */ new Map() };
      this.pages.set(from, page);
      void whenGone(from, () => this.hear(from, { ask: "bye" }, post));
      if (this.line.state.state !== "closed") post({ tell: "condition", condition: this.line.state });
    }
    switch (ask.ask) {
      case "join":
        if (!page.readers.has(ask.reader)) {
          const reader = distant(ask.reader, ask.channels, ask.since, post);
          page.readers.set(ask.reader, reader);
          this.line.add(reader);
        }
        break;
      case "leave": {
        const reader = page.readers.get(ask.reader);
        page.readers.delete(ask.reader);
        if (reader) this.line.remove(reader);
        break;
      }
      case "wake":
        this.line.wake(ask.why);
        break;
      case "token":
        this.answerToken?.(ask.token);
        break;
      case "bye":
        this.pages.delete(from);
        for (const reader of page.readers.values()) this.line.remove(reader);
        break;
    }
  }
  /** Requests a token from the newest page, which most likely still exists. */
  askToken(fresh) {
    return new Promise((resolve) => {
      const forget = this.world.later(TOKEN_MS, () => resolve(void 0));
      this.answerToken = (token) => {
        forget();
        resolve(token);
      };
      [...this.pages.values()].at(-1)?.post({ tell: "token", fresh });
    });
  }
};
function distant(reader, channels, begin, post) {
  let since = begin;
  return {
    channels,
    get since() {
      return since;
    },
    set since(id) {
      if (since === begin) post({ tell: "begins", reader, since: id });
      since = id;
    },
    take: (message) => post({ tell: "message", reader, message }),
    gap: (gap) => post({ tell: "gap", reader, gap })
  };
}
var Remote = class {
  constructor(make, token, onCondition) {
    this.token = token;
    this.onCondition = onCondition;
    this.pipe = make(
      (tell) => this.hear(tell),
      () => {
        for (const [key, reader] of this.readers) this.join(key, reader);
      }
    );
  }
  token;
  onCondition;
  readers = /* @__PURE__ */ new Map();
  pipe;
  count = 0;
  add(reader) {
    const key = this.count++;
    this.readers.set(key, reader);
    this.join(key, reader);
  }
  remove(reader) {
    for (const [key, one] of this.readers) {
      if (one !== reader) continue;
      this.readers.delete(key);
      this.pipe.post({ ask: "leave", reader: key });
    }
  }
  wake(why) {
    this.pipe.post({ ask: "wake", why });
  }
  join(key, { channels, since }) {
    this.pipe.post({ ask: "join", reader: key, channels, since });
  }
  hear(tell) {
    if (tell.tell === "condition") return this.onCondition(tell.condition);
    if (tell.tell === "token") {
      void this.token(tell.fresh).catch(() => void 0).then((token) => this.pipe.post({ ask: "token", token }));
      return;
    }
    const reader = this.readers.get(tell.reader);
    if (!reader) return;
    if (tell.tell === "begins") {
      reader.since = tell.since;
    } else if (tell.tell === "gap") {
      reader.since = tell.gap.to;
      reader.gap(tell.gap);
    } else if (!isId(reader.since) || ahead(tell.message.id, reader.since) > 0) {
      reader.since = tell.message.id;
      reader.take(tell.message);
    }
  }
};
var PAGE = [...crypto.getRandomValues(new Uint32Array(3))].map((word) => word.toString(36)).join("");
var forever = new Promise(() => {
});
var lockOf = (page) => `encke:page:${page}`;
var told;
function alive() {
  return told ??= new Promise((resolve) => {
    if (!navigator.locks) return resolve();
    void navigator.locks.request(lockOf(PAGE), () => (resolve(), forever));
  });
}
async function whenGone(page, run) {
  if (navigator.locks && page !== PAGE) await navigator.locks.request(lockOf(page), run);
}
var WORKER_NAME = "encke.v1";
function workerPipe(script, key, settings, hasToken, failed) {
  return (tell, again) => {
    const worker = new SharedWorker(script, { type: "module", name: WORKER_NAME });
    const { port } = worker;
    worker.onerror = failed;
    port.onmessage = ({ data }) => tell(data);
    const hello = { page: PAGE, key, settings, hasToken };
    const greeted = alive().then(() => port.postMessage(hello));
    addEventListener("pagehide", () => port.postMessage({ ask: "bye" }));
    addEventListener("pageshow", ({ persisted }) => persisted && again());
    return { post: (ask) => void greeted.then(() => port.postMessage(ask)) };
  };
}
function serveTabs(scope, world2) {
  const counters = /* @__PURE__ */ new Map();
  scope.addEventListener("connect", (event) => {
    const port = event.ports[0];
    if (!port) return;
    let hello;
    port.onmessage = ({ data }) => {
      if (!hello) {
        hello = data;
        return;
      }
      let counter = counters.get(hello.key);
      if (!counter) counters.set(hello.key, counter = new Counter(world2, hello.settings, hello.hasToken));
      counter.hear(hello.page, data, (tell) => port.postMessage(tell));
    };
  });
}
function electedPipe(key, make) {
  return (tell, again) => {
    const air = new BroadcastChannel(`encke:${key}`);
    const send = (broadcast) => air.postMessage(broadcast);
    let counter;
    const post = (ask) => {
      if (counter) counter.hear(PAGE, ask, tell);
      else send({ from: PAGE, ask });
    };
    air.onmessage = ({ data }) => {
      if ("leads" in data) again();
      else if ("tell" in data) data.to === PAGE && tell(data.tell);
      else counter?.hear(data.from, data.ask, (tell2) => send({ to: data.from, tell: tell2 }));
    };
    const ready = alive().then(() => {
      void navigator.locks.request(`encke:${key}`, () => {
        counter = make();
        again();
        send({ leads: true });
        return forever;
      });
    });
    addEventListener("pagehide", () => post({ ask: "bye" }));
    addEventListener("pageshow", ({ persisted }) => persisted && again());
    return { post: (ask) => void ready.then(() => post(ask)) };
  };
}

// src/encke.ts
function subscribe(channels, onMessage, options = {}) {
  const wanted = typeof channels === "string" ? [channels] : [...channels];
  const [first] = wanted;
  if (first === void 0) throw new TypeError("subscribe: name at least one channel");
  const seat = seatFor(options);
  const reader = {
    channels: wanted,
    since: options.since ?? "now",
    take: (message) => call(() => onMessage(message.data, message)),
    gap: (gap) => call(() => options.onGap?.(gap))
  };
  const listen = (condition) => call(() => options.onState?.(condition.state, condition));
  seat.listeners.add(listen);
  if (seat.condition) queueMicrotask(() => seat.listeners.has(listen) && seat.condition && listen(seat.condition));
  seat.carrier.add(reader);
  return {
    publish: (data, options2 = {}) => seat.outbox.publish(options2.channel ?? first, data, options2),
    close() {
      seat.carrier.remove(reader);
      seat.listeners.delete(listen);
    }
  };
}
var seats = /* @__PURE__ */ new Map();
function seatFor(options) {
  const { token, share = typeof token !== "function" } = options;
  const url = new URL(options.url ?? "/push/", location.href).href.replace(/\/*$/, "/");
  const settings = { url, name: options.name, transport: options.transport };
  const user = typeof share === "string" ? share : typeof token === "function" ? numberOf(token) : token;
  const key = JSON.stringify([url, settings.name, settings.transport, Boolean(share), user]);
  const known = seats.get(key);
  if (known) return known;
  const source = async () => typeof token === "function" ? token() : token;
  const tell = (condition) => {
    seat.condition = condition;
    for (const listener of seat.listeners) listener(condition);
  };
  const seat = {
    carrier: carrierFor(key, settings, source, token !== void 0, Boolean(share), tell),
    outbox: new Outbox(world, url, source),
    condition: void 0,
    listeners: /* @__PURE__ */ new Set()
  };
  seats.set(key, seat);
  addEventListener("online", () => (seat.carrier.wake("online"), seat.outbox.wake()));
  document.addEventListener("visibilitychange", () => document.hidden || seat.carrier.wake("visible"));
  return seat;
}
function carrierFor(key, settings, token, hasToken, share, tell) {
  const elect = () => {
    const able = share && typeof BroadcastChannel === "function" && navigator.locks;
    if (!able) return new Line(world, settings, token, tell);
    return new Remote(electedPipe(key, () => new Counter(world, settings, hasToken)), token, tell);
  };
  const own = new URL(import.meta.url);
  const worker = share && typeof SharedWorker === "function" && own.pathname.endsWith("/encke.js");
  if (!worker || own.origin !== location.origin) return elect();
  return new Fallback(
    (failed) => new Remote(workerPipe(own.href, key, settings, hasToken, failed), token, tell),
    elect
  );
}
var Fallback = class {
  carrier;
  readers = /* @__PURE__ */ new Set();
  constructor(first, second) {
    this.carrier = first(() => {
      this.carrier = second();
      for (const reader of this.readers) this.carrier.add(reader);
    });
  }
  add(reader) {
    this.readers.add(reader);
    this.carrier.add(reader);
  }
  remove(reader) {
    this.readers.delete(reader);
    this.carrier.remove(reader);
  }
  wake(why) {
    this.carrier.wake(why);
  }
};
var numbers = /* @__PURE__ */ new WeakMap();
var count = 0;
function numberOf(value) {
  const number = numbers.get(value) ?? ++count;
  numbers.set(value, number);
  return number;
}
function call(run) {
  try {
    run();
  } catch (error) {
    reportError(error);
  }
}
var notes = /* @__PURE__ */ new Map();
var world = {
  fetch: (url, init) => fetch(url, init),
  socket: (url, protocol) => new WebSocket(url, protocol),
  now: () => performance.now(),
  random: () => Math.random(),
  later(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  recall(key) {
    try {
      return sessionStorage.getItem(`encke:${key}`);
    } catch {
      return notes.get(key) ?? null;
    }
  },
  remember(key, value) {
    notes.set(key, value);
    try {
      sessionStorage.setItem(`encke:${key}`, value);
    } catch {
    }
  }
};
if (typeof SharedWorkerGlobalScope === "function" && self instanceof SharedWorkerGlobalScope) {
  serveTabs(self, world);
}
export {
  PublishError,
  subscribe
};
