/**
 * Subscribe to the channels of an Encke server, and publish to them.
 *
 *   import { subscribe } from '/encke.js';
 *   const news = subscribe('news', (data, { id, time }) => show(data), { since: 'last:10' });
 *   await news.publish('hello');
 *   news.close();
 *
 * All subscriptions of a page, and those of other tabs of its origin, travel on one stream. It resumes by id, so nothing
 * is lost or doubled while the server keeps the messages; if it no longer does, `onGap` says so.
 */

import { Line, type Condition, type Reader, type Settings, type State, type TokenSource } from './line.js';
import { Outbox, PublishError, type Payload, type Published, type PublishOptions } from './publish.js';
import { Counter, electedPipe, Remote, serveTabs, workerPipe, type Carrier } from './tabs.js';
import type { Transport, World } from './transports.js';
import type { Gap, Message } from './wire.js';

export { PublishError };
export type { Condition, Gap, Message, Payload, Published, PublishOptions, State, Transport };

/** Text, or bytes where the payload is not UTF-8; the message it came with. */
export type OnMessage = (data: string | Uint8Array, message: Message) => void;

export interface SubscribeOptions {
  /** Where the channels are; by default `/push/` of the page's origin. */
  url?: string;
  /** Where to begin: `now` (default), `all`, `last:N`, a duration such as `10m`, or the id of the last message seen. */
  since?: string;
  /** Sent as `Authorization: Bearer`. A function is asked at each connection, and again when its token is refused. */
  token?: string | (() => string | undefined | Promise<string | undefined>);
  /** Use this transport only; by default the best that works: `sse`, else `ws`, else `poll`. */
  transport?: Transport;
  /** The name to be present under, on channels that show who is there. */
  name?: string;
  /**
   * Whether other tabs may use the same stream: by default yes, unless the token comes from a function, because nobody
   * but you can know whether it speaks for the same user there. A text names that user.
   */
  share?: boolean | string;
  /** Messages were lost: those after `from`, up to `to`. */
  onGap?: (gap: Gap) => void;
  /** The stream is `connecting`, `open`, `waiting` to connect again, or was `denied` for good. */
  onState?: (state: State, condition: Condition) => void;
}

export interface Subscription {
  /** Publishes to the first channel, or another; repeats until it has arrived, which it does once. */
  publish(data: Payload, options?: PublishOptions): Promise<Published>;
  /** Ends this subscription; the last one ends the stream. */
  close(): void;
}

/** Calls `onMessage` for each message of these channels, in the order in which they were published. */
export function subscribe(
  channels: string | readonly string[],
  onMessage: OnMessage,
  options: SubscribeOptions = {},
): Subscription {
  const wanted = typeof channels === 'string' ? [channels] : [...channels];
  const [first] = wanted;
  if (first === undefined) throw new TypeError('subscribe: name at least one channel');
  const seat = seatFor(options);
  const reader: Reader = {
    channels: wanted,
    since: options.since ?? 'now',
    take: (message) => call(() => onMessage(message.data, message)),
    gap: (gap) => call(() => options.onGap?.(gap)),
  };
  const listen = (condition: Condition) => call(() => options.onState?.(condition.state, condition));
  seat.listeners.add(listen);
  if (seat.condition) queueMicrotask(() => seat.listeners.has(listen) && seat.condition && listen(seat.condition));
  seat.carrier.add(reader);
  return {
    publish: (data, options = {}) => seat.outbox.publish(options.channel ?? first, data, options),
    close() {
      seat.carrier.remove(reader);
      seat.listeners.delete(listen);
    },
  };
}

/** What subscriptions with the same settings share. */
interface Seat {
  carrier: Carrier;
  outbox: Outbox;
  condition: Condition | undefined;
  listeners: Set<(condition: Condition) => void>;
}

const seats = new Map<string, Seat>();

function seatFor(options: SubscribeOptions): Seat {
  const { token, share = typeof token !== 'function' } = options;
  const url = new URL(options.url ?? '/push/', location.href).href.replace(/\/*$/, '/');
  const settings: Settings = { url, name: options.name, transport: options.transport };
  const user = typeof share === 'string' ? share : typeof token === 'function' ? numberOf(token) : token;
  const key = JSON.stringify([url, settings.name, settings.transport, Boolean(share), user]);
  const known = seats.get(key);
  if (known) return known;

  const source: TokenSource = async () => (typeof token === 'function' ? token() : token);
  const tell = (condition: Condition) => {
    seat.condition = condition;
    for (const listener of seat.listeners) listener(condition);
  };
  const seat: Seat = {
    carrier: carrierFor(key, settings, source, token !== undefined, Boolean(share), tell),
    outbox: new Outbox(world, url, source),
    condition: undefined,
    listeners: new Set(),
  };
  seats.set(key, seat);
  addEventListener('online', () => (seat.carrier.wake('online'), seat.outbox.wake()));
  document.addEventListener('visibilitychange', () => document.hidden || seat.carrier.wake('visible'));
  return seat;
}

function carrierFor(
  key: string,
  settings: Settings,
  token: TokenSource,
  hasToken: boolean,
  share: boolean,
  tell: (condition: Condition) => void,
): Carrier {
  const elect = (): Carrier => {
    const able = share && typeof BroadcastChannel === 'function' && navigator.locks;
    if (!able) return new Line(world, settings, token, tell);
    return new Remote(electedPipe(key, () => new Counter(world, settings, hasToken)), token, tell);
  };
  // A bundler puts this module into a script that would do anything else in a worker.
  const own = new URL(import.meta.url);
  const worker = share && typeof SharedWorker === 'function' && own.pathname.endsWith('/encke.js');
  if (!worker || own.origin !== location.origin) return elect();
  return new Fallback(
    (failed) => new Remote(workerPipe(own.href, key, settings, hasToken, failed), token, tell),
    elect,
  );
}

/** A carrier, and another one for those to whom the first is denied: by a policy, or for want of module workers. */
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
}

const numbers = new WeakMap<object, number>();
let count = 0;

/** The same number for the same function. */
function numberOf(value: object): number {
  const number = numbers.get(value) ?? ++count;
  numbers.set(value, number);
  return number;
}

/** Runs code of the page: its errors are the page's, not the stream's. */
function call(run: () => void): void {
  try {
    run();
  } catch (error) {
    reportError(error);
  }
}

const notes = new Map<string, string>();

/** The browser. */
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
      // A worker has none, and a page may not be allowed any.
      return notes.get(key) ?? null;
    }
  },
  remember(key, value) {
    notes.set(key, value);
    try {
      sessionStorage.setItem(`encke:${key}`, value);
    } catch {
      // As above.
    }
  },
};

declare const SharedWorkerGlobalScope: (new () => EventTarget) | undefined;

// As the script of a shared worker it serves the tabs.
if (typeof SharedWorkerGlobalScope === 'function' && self instanceof SharedWorkerGlobalScope) {
  serveTabs(self, world);
}
