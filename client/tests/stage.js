/**
 * A world without network and clock: the test advances the time and sends the server's responses.
 *
 * No test waits: `settled` runs all pending promises.
 */

import { setMaxListeners } from 'node:events';

import { Line } from '../out/line.js';

export class Stage {
  time = 0;
  timers = new Set();
  /** Open requests, oldest first. */
  requests = [];
  sockets = [];
  notes = new Map();

  world = {
    fetch: (url, init) => new Promise((resolve, reject) => {
      const request = { url, init, resolve, reject, aborted: false };
      if (init.signal) setMaxListeners(0, init.signal);
      init.signal?.addEventListener('abort', () => {
        request.aborted = true;
        request.stream?.error(new Error('aborted'));
        reject(new Error('aborted'));
      });
      if (init.signal?.aborted) reject(new Error('aborted'));
      else this.requests.push(request);
    }),
    socket: (url, protocol) => {
      const socket = { url, protocol, sent: [], closed: false, send: (text) => socket.sent.push(text), close: () => (socket.closed = true) };
      this.sockets.push(socket);
      return socket;
    },
    now: () => this.time,
    random: () => 0.5,
    later: (ms, run) => {
      const timer = { at: this.time + ms, run };
      this.timers.add(timer);
      return () => this.timers.delete(timer);
    },
    recall: (key) => this.notes.get(key) ?? null,
    remember: (key, value) => this.notes.set(key, value),
  };

  /** Advances the time, timer by timer. */
  async pass(ms) {
    const until = this.time + ms;
    await settled();
    for (;;) {
      const next = [...this.timers].sort((a, b) => a.at - b.at)[0];
      if (!next || next.at > until) break;
      this.timers.delete(next);
      this.time = next.at;
      next.run();
      await settled();
    }
    this.time = until;
  }

  /** Returns the oldest open request. */
  next() {
    const request = this.requests.shift();
    if (!request) throw new Error('nothing was asked');
    return request;
  }

  /** Responds to a request with a stream that stays open. Returns its writer. */
  async stream(request, text) {
    const body = new ReadableStream({ start: (controller) => (request.stream = controller) });
    request.resolve(new Response(body, { headers: { 'content-type': 'text/event-stream' } }));
    const write = async (text) => {
      request.stream.enqueue(new TextEncoder().encode(text));
      await settled();
    };
    if (text !== undefined) await write(text);
    return { write, end: async () => (request.stream.close(), await settled()), cut: async () => (request.stream.error(new Error('reset')), await settled()) };
  }

  async answer(request, status, body, headers = {}) {
    const text = body === undefined ? null : JSON.stringify(body);
    request.resolve(new Response(text, { status, headers }));
    await settled();
  }

  /** Rejects a request, as the server does: with a reason in plain text. */
  async refuse(request, status, text, headers = {}) {
    request.resolve(new Response(`${text}\n`, { status, headers: { 'content-type': 'text/plain; charset=utf-8', ...headers } }));
    await settled();
  }

  /** A line that records its conditions. */
  line(settings = {}, token = async () => undefined) {
    const states = [];
    const line = new Line(this.world, { url: 'http://test/push/', ...settings }, token, (condition) => states.push(condition));
    return { line, states };
  }
}

/** A reader that records its messages. */
export function reader(channels, since = 'now') {
  const read = [];
  const gaps = [];
  const one = { channels, since, read, gaps, take: (message) => read.push(`${message.id} ${message.data}`), gap: (gap) => gaps.push(gap), denied: (status, text) => ((one.rejected = status), (one.reason = text)) };
  return one;
}

/** Encodes a message as an event of an event stream. */
export function event(id, data, channel = 'a') {
  return `id: ${id}\ndata: ${JSON.stringify({ id, channel, data })}\n\n`;
}

export function envelope(id, data, channel = 'a') {
  return { id, channel, data };
}

/** Runs all pending promises. Those of streams take several turns. */
export async function settled() {
  for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve));
}
