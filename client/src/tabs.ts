/**
 * One line shared by all tabs of an origin.
 *
 *   page ─ Remote ─► pipe ─► Counter ─ Line ─► server
 *                     │
 *                     ├ a SharedWorker, if the browser supports it and this script has a URL of its own
 *                     └ else the tab that holds a Web Lock, by a BroadcastChannel; when it closes, the lock passes to
 *                       another tab, and every page resubscribes from its position
 *
 * Each page holds a lock of its own. When a page disappears without notice, its lock is released, which the counter detects.
 */

import { Line, type Condition, type Reader, type Settings, type TokenSource } from './line.js';
import type { World } from './transports.js';
import { ahead, isId, type Gap, type Message } from './wire.js';

/** Delivers messages to readers: a line, or a connection to one. */
export interface Carrier {
  add(reader: Reader): void;
  remove(reader: Reader): void;
  wake(why: 'online' | 'visible'): void;
  /** Releases the locks and ports of a carrier without readers. */
  close?(): void;
}

/** A command of a page. */
type Ask =
  | { ask: 'join'; reader: number; channels: readonly string[]; since: string }
  | { ask: 'leave'; reader: number }
  | { ask: 'wake'; why: 'online' | 'visible' }
  | { ask: 'token'; token: string | undefined; failed: boolean }
  | { ask: 'bye' };

/** A notification to a page. */
type Tell =
  | { tell: 'message'; reader: number; message: Message }
  | { tell: 'gap'; reader: number; gap: Gap }
  | { tell: 'denied'; reader: number; status: number; text: string }
  | { tell: 'begins'; reader: number; since: string }
  | { tell: 'condition'; condition: Condition }
  | { tell: 'token'; fresh: boolean };

interface Pipe {
  post(ask: Ask): void;
  /** This page needs the line no longer. */
  close(): void;
}

/** Creates a pipe. `again` is called when the peer has changed and has no state of this page. */
export type PipeMaker = (tell: (tell: Tell) => void, again: () => void) => Pipe;

/** Time limit for a page to return a token. If a page does not respond, for example because it is suspended, the next page receives the request. */
const TOKEN_MS = 5_000;

/** A page at the counter. */
interface Page {
  post: (tell: Tell) => void;
  readers: Map<number, Reader>;
  /** Ends the wait for the disappearance of the page. */
  gone: AbortController;
}

/** The end of the pipes at the line. */
export class Counter {
  private readonly pages = new Map<string, Page>();
  private readonly line: Line;
  private onToken: (from: string, answer: string | undefined | Error) => void = () => {};

  constructor(
    private readonly world: World,
    settings: Settings,
    hasToken: boolean,
  ) {
    const token: TokenSource = (fresh) => (hasToken ? this.askToken(fresh) : Promise.resolve(undefined));
    this.line = new Line(world, settings, token, (condition) => {
      for (const page of this.pages.values()) page.post({ tell: 'condition', condition });
    });
  }

  /** Whether no page uses the line. */
  get idle(): boolean {
    return this.pages.size === 0;
  }

  /** Ends the line: another tab takes over. */
  close(): void {
    const pages = [...this.pages.values()];
    this.pages.clear();
    for (const page of pages) this.forget(page);
  }

  private forget(page: Page): void {
    page.gone.abort();
    for (const reader of page.readers.values()) this.line.remove(reader);
  }

  hear(from: string, ask: Ask, post: (tell: Tell) => void): void {
    let page = this.pages.get(from);
    if (!page) {
      if (ask.ask === 'bye') return;
      page = { post, readers: new Map(), gone: new AbortController() };
      this.pages.set(from, page);
      whenGone(from, page.gone.signal, () => this.hear(from, { ask: 'bye' }, post));
      // An unused line is closed; the first page is about to open it.
      if (this.line.state.state !== 'closed') post({ tell: 'condition', condition: this.line.state });
    }
    switch (ask.ask) {
      case 'join':
        if (!page.readers.has(ask.reader)) {
          const { readers } = page;
          const reader = distant(ask.reader, ask.channels, ask.since, post, () => readers.delete(ask.reader));
          readers.set(ask.reader, reader);
          this.line.add(reader);
        }
        break;
      case 'leave': {
        const reader = page.readers.get(ask.reader);
        page.readers.delete(ask.reader);
        if (reader) this.line.remove(reader);
        break;
      }
      case 'wake':
        this.line.wake(ask.why);
        break;
      case 'token':
        this.onToken(from, ask.failed ? new Error('the page has no token now') : ask.token);
        break;
      case 'bye':
        this.pages.delete(from);
        this.forget(page);
        this.onToken(from, undefined);
        break;
    }
  }

  /** Requests a token from the newest page, which most likely still exists, and from the others if it has none. */
  private async askToken(fresh: boolean): Promise<string | undefined> {
    let failure: Error | undefined;
    for (const [name, page] of [...this.pages].reverse()) {
      if (page.readers.size === 0) continue;
      const answer = await this.askPage(name, page, fresh);
      if (typeof answer === 'string') return answer;
      failure ??= answer;
    }
    if (failure) throw failure;
    return undefined;
  }

  private askPage(name: string, page: Page, fresh: boolean): Promise<string | undefined | Error> {
    return new Promise((resolve) => {
      const forget = this.world.later(TOKEN_MS, () => resolve(new Error('a page does not respond')));
      this.onToken = (from, answer) => {
        // Another page may respond late; only its token is of use.
        if (from !== name && typeof answer !== 'string') return;
        forget();
        resolve(answer);
      };
      page.post({ tell: 'token', fresh });
    });
  }
}

/** A reader at the other end of a pipe. */
function distant(
  reader: number,
  channels: readonly string[],
  begin: string,
  post: (tell: Tell) => void,
  onDenied: () => void,
): Reader {
  let since = begin;
  return {
    channels,
    get since() {
      return since;
    },
    set since(id) {
      // Sent once, so that a page without messages can resume elsewhere from this position.
      if (since === begin) post({ tell: 'begins', reader, since: id });
      since = id;
    },
    take: (message) => post({ tell: 'message', reader, message }),
    gap: (gap) => post({ tell: 'gap', reader, gap }),
    denied(status, text) {
      onDenied();
      post({ tell: 'denied', reader, status, text });
    },
  };
}

/** The end of a pipe at the page. */
export class Remote implements Carrier {
  private readonly readers = new Map<number, Reader>();
  private readonly pipe: Pipe;
  private count = 0;

  constructor(
    make: PipeMaker,
    private readonly token: TokenSource,
    private readonly onCondition: (condition: Condition) => void,
  ) {
    this.pipe = make(
      (tell) => this.hear(tell),
      () => {
        for (const [key, reader] of this.readers) this.join(key, reader);
      },
    );
  }

  add(reader: Reader): void {
    const key = this.count++;
    this.readers.set(key, reader);
    this.join(key, reader);
  }

  remove(reader: Reader): void {
    for (const [key, one] of this.readers) {
      if (one !== reader) continue;
      this.readers.delete(key);
      this.pipe.post({ ask: 'leave', reader: key });
    }
  }

  wake(why: 'online' | 'visible'): void {
    this.pipe.post({ ask: 'wake', why });
  }

  close(): void {
    this.pipe.close();
  }

  private join(key: number, { channels, since }: Reader): void {
    this.pipe.post({ ask: 'join', reader: key, channels, since });
  }

  private hear(tell: Tell): void {
    if (tell.tell === 'condition') return this.onCondition(tell.condition);
    if (tell.tell === 'token') {
      void this.token(tell.fresh).then(
        (token) => this.pipe.post({ ask: 'token', token, failed: false }),
        () => this.pipe.post({ ask: 'token', token: undefined, failed: true }),
      );
      return;
    }
    const reader = this.readers.get(tell.reader);
    if (!reader) return;
    if (tell.tell === 'denied') {
      this.readers.delete(tell.reader);
      reader.denied(tell.status, tell.text);
    } else if (tell.tell === 'begins') {
      reader.since = tell.since;
    } else if (tell.tell === 'gap') {
      reader.since = tell.gap.to;
      reader.gap(tell.gap);
    } else if (!isId(reader.since) || ahead(tell.message.id, reader.since) > 0) {
      reader.since = tell.message.id;
      reader.take(tell.message);
    }
  }
}

/** The random identifier of this page. */
const PAGE = [...crypto.getRandomValues(new Uint32Array(3))].map((word) => word.toString(36)).join('');
const forever = new Promise<never>(() => {});
const lockOf = (page: string) => `encke:page:${page}`;
let told: Promise<void> | undefined;

/** Holds the lock by which others detect that this page exists. Resolves once the lock is held. */
function alive(): Promise<void> {
  return (told ??= new Promise((resolve) => {
    if (!navigator.locks) return resolve();
    void navigator.locks.request(lockOf(PAGE), () => (resolve(), forever));
  }));
}

function whenGone(page: string, signal: AbortSignal, run: () => void): void {
  // An abort rejects the request.
  if (navigator.locks && page !== PAGE) void navigator.locks.request(lockOf(page), { signal }, run).catch(() => {});
}

/** The first message of a page to the worker. */
interface Hello {
  page: string;
  key: string;
  settings: Settings;
  hasToken: boolean;
}

/** Names the version of these messages: after an update of the server, older tabs keep their own worker and channel. */
const VERSION = 'encke.v2';

/** Creates a pipe to the worker that runs this script. `failed` is called if there cannot be one. */
export function workerPipe(script: string, key: string, settings: Settings, hasToken: boolean, failed: () => void): PipeMaker {
  return (tell, again) => {
    const worker = new SharedWorker(script, { type: 'module', name: VERSION });
    const { port } = worker;
    worker.onerror = failed;
    port.onmessage = ({ data }) => tell(data as Tell);
    const hello: Hello = { page: PAGE, key, settings, hasToken };
    const greeted = alive().then(() => port.postMessage(hello));
    const post = (ask: Ask) => void greeted.then(() => port.postMessage(ask));
    const closed = new AbortController();
    const { signal } = closed;
    addEventListener('pagehide', () => port.postMessage({ ask: 'bye' } satisfies Ask), { signal });
    addEventListener('pageshow', ({ persisted }) => persisted && again(), { signal });
    return {
      post,
      close() {
        closed.abort();
        post({ ask: 'bye' });
        void greeted.then(() => port.close());
      },
    };
  };
}

/** Serves the tabs in the worker. */
export function serveTabs(scope: EventTarget, world: World): void {
  const counters = new Map<string, Counter>();
  scope.addEventListener('connect', (event) => {
    const port = (event as MessageEvent).ports[0];
    if (!port) return;
    let hello: Hello | undefined;
    port.onmessage = ({ data }) => {
      if (!hello) {
        hello = data as Hello;
        return;
      }
      let counter = counters.get(hello.key);
      if (!counter) counters.set(hello.key, (counter = new Counter(world, hello.settings, hello.hasToken)));
      counter.hear(hello.page, data as Ask, (tell) => port.postMessage(tell));
      if (counter.idle) counters.delete(hello.key);
    };
  });
}

/** The messages on the BroadcastChannel. */
type Broadcast = { from: string; ask: Ask } | { to: string; tell: Tell } | { leads: true };

/** Creates a pipe to the tab that holds the lock, which may be this one. */
export function electedPipe(key: string, make: () => Counter): PipeMaker {
  return (tell, again) => {
    const air = new BroadcastChannel(`${VERSION}:${key}`);
    const send = (broadcast: Broadcast) => air.postMessage(broadcast);
    let counter: Counter | undefined;
    const post = (ask: Ask) => {
      if (counter) counter.hear(PAGE, ask, tell);
      else send({ from: PAGE, ask });
    };
    air.onmessage = ({ data }: MessageEvent<Broadcast>) => {
      if ('leads' in data) again();
      else if ('tell' in data) data.to === PAGE && tell(data.tell);
      else counter?.hear(data.from, data.ask, (tell) => send({ to: data.from, tell }));
    };
    const closed = new AbortController();
    const { signal } = closed;
    let release = () => {};
    const ready = alive().then(() => {
      const lead = () => {
        counter = make();
        again();
        send({ leads: true });
        return new Promise<void>((resolve) => (release = resolve));
      };
      // An abort rejects the request.
      void navigator.locks.request(`${VERSION}:${key}`, { signal }, lead).catch(() => {});
    });
    addEventListener('pagehide', () => post({ ask: 'bye' }), { signal });
    addEventListener('pageshow', ({ persisted }) => persisted && again(), { signal });
    return {
      post: (ask) => void ready.then(() => signal.aborted || post(ask)),
      close: () =>
        void ready.then(() => {
          post({ ask: 'bye' });
          closed.abort();
          counter?.close();
          air.close();
          release();
        }),
    };
  };
}
