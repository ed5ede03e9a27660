/**
 * Subscribe to the channels of an Encke server, and publish to them.
 *
 *   import { subscribe } from '/encke.js';
 *   const news = subscribe('news', (data, { id, time }) => show(data), { since: 'last:10' });
 *   await news.publish('hello');
 *   news.close();
 *
 * All subscriptions of a user, in a page and in other tabs of its origin, share one stream. It resumes by id, so no message is lost or
 * repeated while the server keeps the messages. After that, `onGap` reports the lost range.
 */

import { Line, type Condition, type Reader, type State, type TokenSource } from './line.js';
import { Pool, type LinePlan, type Token } from './pool.js';
import { Outbox, PublishError, unknownOption, type Payload, type Published, type PublishOptions } from './publish.js';
import { Counter, electedPipe, Remote, serveTabs, workerPipe, type Carrier } from './tabs.js';
import { TRANSPORTS, type Transport, type World } from './transports.js';
import { parsed, type Gap, type Message } from './wire.js';

export { PublishError };
export type { Condition, Gap, Message, Payload, Published, PublishOptions, State, Token, Transport };

/** Receives the payload, as text or as bytes if it is not UTF-8, and its message. */
export type OnMessage = (data: string | Uint8Array, message: Message) => void;

/** Receives the parsed value, or the payload if it is not JSON, and its message. */
export type OnJson = (value: unknown, message: Message) => void;

export interface SubscribeOptions {
  /** The URL of the channels; by default `/push/` of the page's origin. */
  url?: string | undefined;
  /** Where to start: `now` (default), `all`, `last:N`, a duration such as `10m`, or the id of the last message seen. */
  since?: string | undefined;
  /**
   * Sent as `Authorization: Bearer`. A function is called for each connection and publish, and again when its token is rejected. It may
   * be written inline: subscriptions whose functions return tokens of the same user with the same rights share a stream.
   */
  token?: Token | undefined;
  /** Use only this transport; by default the best that works: `sse`, else `ws`, else `poll`. */
  transport?: Transport | undefined;
  /** The member name, on channels with presence. */
  name?: string | undefined;
  /**
   * Whether other tabs may share the stream. By default they may, unless a function returns a token without a subject (`sub`). A text
   * names the user: subscriptions with the same text share a stream, and their tokens are not compared.
   */
  share?: boolean | string | undefined;
  /** Parse each payload as JSON for `onMessage`. A payload that is no JSON stays text or bytes. */
  json?: boolean | undefined;
  /** Messages were lost: those after `from`, up to `to`. */
  onGap?: ((gap: Gap) => void) | undefined;
  /** The stream is `connecting`, `open`, `waiting` to reconnect, or was permanently `denied`, with `status` and `text`. */
  onState?: ((state: State, condition: Condition) => void) | undefined;
}

const SUBSCRIBE_OPTIONS: Record<keyof SubscribeOptions, true> = {
  url: true,
  since: true,
  token: true,
  transport: true,
  name: true,
  share: true,
  json: true,
  onGap: true,
  onState: true,
};

export interface Subscription {
  /** Publishes to the first channel, or to another one. Retries until the server has the message, without duplicates. */
  publish(data: Payload, options?: PublishOptions): Promise<Published>;
  /** Ends this subscription; the last one closes the stream. */
  close(): void;
}

/**
 * Calls `onMessage` for each message of these channels, in the order of publication. With `json: true` it receives parsed values.
 */
export function subscribe(
  channels: string | readonly string[],
  onMessage: OnJson,
  options: SubscribeOptions & { json: true },
): Subscription;
export function subscribe(channels: string | readonly string[], onMessage: OnMessage, options?: SubscribeOptions): Subscription;
export function subscribe(
  channels: string | readonly string[],
  onMessage: OnMessage | OnJson,
  options: SubscribeOptions = {},
): Subscription {
  const wanted = typeof channels === 'string' ? [channels] : [...channels];
  const [first] = wanted;
  if (first === undefined) throw new TypeError('subscribe: name at least one channel');
  const unknown = unknownOption('subscribe', options, SUBSCRIBE_OPTIONS);
  if (unknown) throw unknown;
  const { name, transport, token, share, json } = options;
  if (transport !== undefined && !TRANSPORTS.includes(transport)) {
    throw new TypeError(`subscribe: unknown transport "${transport}": expected ${TRANSPORTS.join(', ')}`);
  }
  const url = absolute(options.url ?? '/push/').replace(/\/*$/, '/');
  const { pool, outboxes } = (page ??= open());
  const take = onMessage as OnJson;
  const reader: Reader = {
    channels: wanted,
    since: options.since ?? 'now',
    take: (message) => call(() => take(json ? valueOf(message.data) : message.data, message)),
    gap: (gap) => call(() => options.onGap?.(gap)),
    denied(status, text) {
      console.warn(`encke: cannot subscribe to ${wanted.join()}: ${text || 'no reason given'} (status ${status})`);
      pool.deny(place, status, text);
    },
  };
  const listen = (condition: Condition) => call(() => options.onState?.(condition.state, condition));
  const place = pool.join({ settings: { url, name, transport }, token, share, reader, listen });
  const source: TokenSource = async () => (typeof token === 'function' ? token() : token);
  const outbox = outboxes.get(url) ?? new Outbox(world, url);
  outboxes.set(url, outbox);
  return {
    publish: (data, options = {}) => outbox.publish(options.channel ?? first, data, options, source),
    close: () => pool.leave(place),
  };
}

/** Resolves the URL of a server. Outside of a page, as in Node, there is no address to which it could be relative. */
function absolute(url: string): string {
  const page = globalThis.location?.href;
  if (!page && !URL.canParse(url)) throw new TypeError(`subscribe: the url "${url}" is relative to a page, and there is none: name the server`);
  return new URL(url, page).href;
}

/** The state of a page: its streams, and an outbox for each server. */
interface PageState {
  pool: Pool;
  outboxes: Map<string, Outbox>;
}

let page: PageState | undefined;

function open(): PageState {
  const pool = new Pool(world, carrierFor, (text) => console.warn(text));
  const outboxes = new Map<string, Outbox>();
  // Node has neither, and a worker no document.
  globalThis.addEventListener?.('online', () => {
    pool.wake('online');
    for (const outbox of outboxes.values()) outbox.wake();
  });
  globalThis.document?.addEventListener('visibilitychange', () => document.hidden || pool.wake('visible'));
  return { pool, outboxes };
}

/** Parses a payload as JSON. Other payloads stay as they are. */
function valueOf(data: string | Uint8Array): unknown {
  const value = typeof data === 'string' ? parsed(data) : undefined;
  return value === undefined ? data : value;
}

function carrierFor({ key, settings, hasToken, tabs }: LinePlan, token: TokenSource, tell: (condition: Condition) => void): Carrier {
  const elect = (): Carrier => {
    const able = tabs && globalThis.document && typeof BroadcastChannel === 'function' && navigator.locks;
    if (!able) return new Line(world, settings, token, tell);
    return new Remote(electedPipe(key, () => new Counter(world, settings, hasToken)), token, tell);
  };
  // A bundler puts this module into a script that does something else when it is run as a worker.
  const own = new URL(import.meta.url);
  const worker = tabs && typeof SharedWorker === 'function' && own.pathname.endsWith('/encke.js');
  if (!worker || own.origin !== globalThis.location?.origin) return elect();
  return new Fallback(
    (failed) => new Remote(workerPipe(own.href, key, settings, hasToken, failed), token, tell),
    elect,
  );
}

/**
 * A carrier, replaced by a second one if the first is unavailable: because of a policy, or without support for module workers.
 */
class Fallback implements Carrier {
  private carrier: Carrier;
  private readonly readers = new Set<Reader>();

  constructor(first: (failed: () => void) => Carrier, second: () => Carrier) {
    this.carrier = first(() => {
      this.carrier = second();
      for (const reader of this.readers) this.carrier.add(reader);
    });
  }

  add(reader: Reader): void {
    this.readers.add(reader);
    this.carrier.add(reader);
  }

  remove(reader: Reader): void {
    this.readers.delete(reader);
    this.carrier.remove(reader);
  }

  wake(why: 'online' | 'visible'): void {
    this.carrier.wake(why);
  }

  close(): void {
    this.carrier.close?.();
  }
}

/** Runs code of the page. Its errors are reported and do not affect the stream. */
function call(run: () => void): void {
  try {
    run();
  } catch (error) {
    // Node has no `reportError`.
    (globalThis.reportError ?? console.error)(error);
  }
}

const notes = new Map<string, string>();

/** The browser as a `World`. */
const world: World = {
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
      // A worker has no session storage, and a page may have no access to it.
      return notes.get(key) ?? null;
    }
  },
  remember(key, value) {
    notes.set(key, value);
    try {
      sessionStorage.setItem(`encke:${key}`, value);
    } catch {
      // See `recall`.
    }
  },
};

declare const SharedWorkerGlobalScope: (new () => EventTarget) | undefined;

// As the script of a shared worker, this module serves the tabs.
if (typeof SharedWorkerGlobalScope === 'function' && self instanceof SharedWorkerGlobalScope) {
  serveTabs(self, world);
}
