/**
 * Subscribe to the channels of an Encke server, and publish to them.
 *
 *   import { subscribe } from '/encke.js';
 *   const news = subscribe('news', (data, { id, time }) => show(data), { since: 'last:10' });
 *   await news.publish('hello');
 *   news.close();
 *
 * All subscriptions of a page, and of other tabs of its origin, share one stream. It resumes by id, so no message is lost or
 * repeated while the server keeps the messages. After that, `onGap` reports the lost range.
 */

import { Line, type Condition, type Reader, type Settings, type State, type TokenSource } from './line.js';
import { Outbox, PublishError, type Payload, type Published, type PublishOptions } from './publish.js';
import { Counter, electedPipe, Remote, serveTabs, workerPipe, type Carrier } from './tabs.js';
import type { Transport, World } from './transports.js';
import type { Gap, Message } from './wire.js';

export { PublishError };
export type { Condition, Gap, Message, Payload, Published, PublishOptions, State, Transport };

/** Receives the payload, as text or as bytes if it is not UTF-8, and its message. */
export type OnMessage = (data: string | Uint8Array, message: Message) => void;

export interface SubscribeOptions {
  /** The URL of the channels; by default `/push/` of the page's origin. */
  url?: string;
  /** Where to start: `now` (default), `all`, `last:N`, a duration such as `10m`, or the id of the last message seen. */
  since?: string;
  /** Sent as `Authorization: Bearer`. A function is called for each connection, and again when its token is rejected. */
  token?: string | (() => string | undefined | Promise<string | undefined>);
  /** Use only this transport; by default the best that works: `sse`, else `ws`, else `poll`. */
  transport?: Transport;
  /** The member name, on channels with presence. */
  name?: string;
  /**
   * Whether other tabs may share the stream. By default they may, unless the token comes from a function: only the page knows
   * whether that token belongs to the same user in every tab. A text names the user.
   */
  share?: boolean | string;
  /** Messages were lost: those after `from`, up to `to`. */
  onGap?: (gap: Gap) => void;
  /** The stream is `connecting`, `open`, `waiting` to reconnect, or was permanently `denied`. */
  onState?: (state: State, condition: Condition) => void;
}

export interface Subscription {
  /** Publishes to the first channel, or to another one. Retries until the server has the message, without duplicates. */
  publish(data: Payload, options?: PublishOptions): Promise<Published>;
  /** Ends this subscription; the last one closes the stream. */
  close(): void;
}

/** Calls `onMessage` for each message of these channels, in the order of publication. */
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

/** The state that subscriptions with the same settings share. */
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
  // A bundler puts this module into a script that does something else when it is run as a worker.
  const own = new URL(import.meta.url);
  const worker = share && typeof SharedWorker === 'function' && own.pathname.endsWith('/encke.js');
  if (!worker || own.origin !== location.origin) return elect();
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
}

const numbers = new WeakMap<object, number>();
let count = 0;

/** Returns a number that identifies a function. */
function numberOf(value: object): number {
  const number = numbers.get(value) ?? ++count;
  numbers.set(value, number);
  return number;
}

/** Runs code of the page. Its errors are reported and do not affect the stream. */
function call(run: () => void): void {
  try {
    run();
  } catch (error) {
    reportError(error);
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
