/**
 * A line: one stream for any number of readers, which is reopened after every failure.
 *
 *              add, remove                            bytes received
 *   (none) ───────────────► connecting ─────────────────────────► open
 *      ▲                     ▲   │    ▲ delay over, wake            │ over, dead, wake
 *      │ last reader removed │   │    └────────── waiting ◄─────────┤
 *      └─────────────────────┘   │ 401 twice in a row, 4xx          │ add, remove: connecting immediately
 *                                └────────► denied                  ▼
 *
 * The server authorises all channels of a stream together. When it rejects them, the line requests the channels of each reader
 * alone, removes the rejected readers, and continues with the others.
 *
 * Readers with different positions form parts. A stream has one position. Before it opens, the line therefore catches all parts
 * up with polls that do not wait, oldest first, and merges them. No reader misses a message or receives one twice, and a new
 * channel cannot cause a gap for the others.
 *
 * Transports (transports.ts) make single attempts; tabs.ts shares a line among tabs.
 */

import { attempts, batchOf, TRANSPORTS, wishOf, type Attempt, type End, type Transport, type World } from './transports.js';
import { ahead, isId, type Gap, type Message, type Word } from './wire.js';

export type State = 'connecting' | 'open' | 'waiting' | 'denied' | 'closed';

/** The state of a line. */
export interface Condition {
  state: State;
  transport: Transport;
  /** For `waiting`: the delay. */
  delayMs?: number;
  /** For `denied`: the status of the response. */
  status?: number;
  /** For `denied`: the server's reason, in one line; empty if the response has none. */
  text?: string;
}

/** A reader of channels. */
export interface Reader {
  readonly channels: readonly string[];
  /** The start position; later the id up to which the reader has everything. The line updates it. */
  since: string;
  take(message: Message): void;
  gap(gap: Gap): void;
  /** The server permanently rejects its channels: the line has removed it. */
  denied(status: number, text: string): void;
}

/** The address and identity of a line. Lines with the same settings are interchangeable. */
export interface Settings {
  url: string;
  name?: string | undefined;
  /** Use only this transport. */
  transport?: Transport | undefined;
}

/**
 * Returns a token for the next attempt. `fresh` means that the last one was rejected. `undefined` means no token, or no other.
 */
export type TokenSource = (fresh: boolean) => Promise<string | undefined>;

/**
 * Time limit for the first bytes. A server sends its position immediately; a proxy that buffers it will buffer messages, too.
 */
const FIRST_BYTE_MS = 5_000;
/** Maximum silence. The server sends something at least every 25 s: two heartbeats may be late, the third is missing. */
const DEAD_MS = 60_000;
/** A stream with bytes in this time is kept when its page becomes visible: 25 s and some latency. */
const FRESH_MS = 30_000;
/** Default retry time, if the server sends none. */
const RETRY_MS = 2_000;
const RETRY_MS_MAX = 30_000;
/** A transport that has worked before is abandoned after this many attempts without a byte. */
const STRIKES = 3;

/** Timeout of a poll that does not wait: a full history ring on a slow phone. */
const CATCH_UP_MS = 20_000;

interface Part {
  since: string;
  /** Whether the current attempt requested this part. Readers that are added later must not join it. */
  asked: boolean;
  readonly readers: Set<Reader>;
}

/** The reason why the client ended an attempt. */
type Cause = 'changed' | 'woken' | 'silent' | 'dead';

export class Line {
  private parts: Part[] = [];
  /** The part whose messages the current attempt delivers. */
  private live: Part | undefined;
  private running = false;
  private changing = false;
  /** The channels of the current attempt. */
  private asked = '';
  private abort: (cause: Cause) => void = () => {};
  private endPause: () => void = () => {};
  private heardAt = 0;
  private condition: Condition;
  private readonly ladder: readonly Transport[];
  private transport: Transport;
  /** The transport that has worked, here or earlier in this tab. */
  private proven: Transport | undefined;
  private strikes = 0;
  private failures = 0;

  constructor(
    private readonly world: World,
    private readonly settings: Settings,
    private readonly token: TokenSource,
    private readonly onCondition: (condition: Condition) => void,
  ) {
    this.ladder = settings.transport ? [settings.transport] : TRANSPORTS;
    const remembered = world.recall(settings.url);
    this.proven = this.ladder.find((transport) => transport === remembered);
    this.transport = this.proven ?? this.top;
    this.condition = { state: 'closed', transport: this.transport };
  }

  get state(): Condition {
    return this.condition;
  }

  add(reader: Reader): void {
    const { live } = this;
    if (live && this.condition.state === 'open' && reader.since === 'now' && this.carries(reader, live)) {
      reader.since = live.since;
      live.readers.add(reader);
      // Its last reader may have left in this turn: the new one takes over the stream.
      if (this.parts.length === 0) this.parts.push(live);
      return;
    }
    const part = this.parts.find((part) => !part.asked && part.since === reader.since);
    if (part) part.readers.add(reader);
    else this.parts.push({ since: reader.since, asked: false, readers: new Set([reader]) });
    this.change();
  }

  remove(reader: Reader): void {
    for (const part of this.parts) part.readers.delete(reader);
    this.parts = this.parts.filter((part) => part.readers.size > 0);
    this.change();
  }

  /** Handles a network change, or a page that became visible: timers may have been suspended. */
  wake(why: 'online' | 'visible'): void {
    this.endPause();
    const stale = this.world.now() - this.heardAt > FRESH_MS;
    if (this.condition.state === 'open' && (why === 'online' || stale)) this.abort('woken');
  }

  /** Applies additions and removals of readers, once per turn. */
  private change(): void {
    if (this.changing) return;
    this.changing = true;
    this.world.later(0, () => {
      this.changing = false;
      const isServed = this.parts.length === 1 && (!this.live || this.parts[0] === this.live);
      if (this.running && isServed && channelsOf(this.parts).join() === this.asked) return;
      this.abort('changed');
      this.endPause();
      if (!this.running && this.parts.length > 0) void this.run();
    });
  }

  private async run(): Promise<void> {
    this.running = true;
    let refused = false;
    while (this.parts.length > 0) {
      const renewed = refused;
      const begunAt = this.world.now();
      const { end, cause, heard } = await this.attempt(refused);
      // The server accepted the token. A rejection after that is its expiry.
      if (heard) refused = false;
      if (cause === 'changed' || cause === 'woken') continue;
      if (end.why === 'denied' || (end.why === 'token' && refused)) {
        const status = end.why === 'denied' ? end.status : 401;
        const { text } = end;
        const rest = await this.sift(status, text);
        refused = false;
        if (rest === 'some') continue;
        if (rest === 'all') return this.tell({ state: 'denied', transport: this.transport, status, text });
        await this.pause({ why: 'over' });
        continue;
      }
      refused = end.why === 'token';
      if (refused) {
        // Servers whose clocks differ accept and reject the same token in turn.
        if (heard && renewed && this.world.now() - begunAt < RETRY_MS) await this.pause({ why: 'over' });
        continue;
      }
      if (this.falls(end, heard)) continue;
      await this.pause(end);
    }
    this.running = false;
    this.tell({ state: 'closed', transport: this.transport });
  }

  private async attempt(fresh: boolean): Promise<{ end: End; cause: Cause | undefined; heard: boolean }> {
    const abort = new AbortController();
    let cause: Cause | undefined;
    let heard = false;
    let forget = () => {};
    this.abort = (why) => {
      cause ??= why;
      forget();
      abort.abort();
    };
    const expect = (ms: number, otherwise: Cause) => {
      forget();
      forget = this.world.later(ms, () => this.abort(otherwise));
    };
    const run = async (): Promise<End> => {
      this.tell({ state: 'connecting', transport: this.transport });
      expect(CATCH_UP_MS, 'dead');
      const token = await this.token(fresh);
      this.asked = channelsOf(this.parts).join();
      for (const part of this.parts) part.asked = true;
      const attempt: Attempt = {
        world: this.world,
        url: this.settings.url,
        name: this.settings.name,
        token,
        channels: [],
        since: '',
        signal: abort.signal,
        heard: () => {
          if (abort.signal.aborted) return;
          expect(DEAD_MS, 'dead');
          this.heardAt = this.world.now();
          if (!heard) this.opened();
          heard = true;
        },
        say: () => {},
      };
      const failed = this.parts.length > 1 ? await this.catchUp(attempt) : undefined;
      const [part] = this.parts;
      if (failed || !part || abort.signal.aborted) return failed ?? { why: 'over' };
      attempt.channels = channelsOf([part]);
      attempt.since = part.since;
      attempt.say = (word) => {
        if (!abort.signal.aborted) spread(word, part);
      };
      this.live = part;
      expect(FIRST_BYTE_MS, 'silent');
      return attempts[this.transport](attempt);
    };
    // A fetch rejects if there is no network, or if it was aborted.
    const end = await run().catch((): End => ({ why: 'over' }));
    this.live = undefined;
    forget();
    return { end: cause === 'silent' ? { why: 'unable' } : end, cause, heard };
  }

  /**
   * After a rejection, removes the readers whose channels are rejected. Returns which readers were rejected: `none` if the requests
   * failed. If each reader's channels are accepted alone, only together they are not: then all are rejected.
   */
  private async sift(status: number, text: string): Promise<'some' | 'all' | 'none'> {
    const readers = this.parts.flatMap((part) => [...part.readers]);
    const lists = new Map(readers.map(({ channels }) => [channels.join(), channels]));
    const ends = new Map<string, End | undefined>();
    if (lists.size > 1) {
      let token: string | undefined;
      try {
        token = await this.token(false);
      } catch {
        return 'none';
      }
      const abort = new AbortController();
      const forget = this.world.later(CATCH_UP_MS, () => abort.abort());
      const { url, name } = this.settings;
      const asks = [...lists].map(async ([key, channels]) => {
        const attempt: Attempt = { world: this.world, url, name, token, channels, since: 'now', signal: abort.signal, heard() {}, say() {} };
        const batch = await batchOf(attempt, channels, 'now', 0);
        ends.set(key, 'why' in batch ? batch : undefined);
      });
      const failed = (await Promise.allSettled(asks)).some((ask) => ask.status === 'rejected');
      forget();
      const refused = [...ends.values()].filter((end) => end?.why === 'denied' || end?.why === 'token').length;
      const unknown = failed || [...ends.values()].some((end) => end?.why === 'over' || end?.why === 'unable');
      if (refused === 0 && unknown) return 'none';
      if (refused === 0) ends.clear();
    }
    const denied = readers.filter(({ channels }) => {
      const end = ends.get(channels.join());
      return ends.size === 0 || end?.why === 'denied' || end?.why === 'token';
    });
    for (const part of this.parts) for (const reader of denied) part.readers.delete(reader);
    this.parts = this.parts.filter((part) => part.readers.size > 0);
    this.running = this.parts.length > 0;
    for (const reader of denied) {
      const end = ends.get(reader.channels.join());
      if (end?.why === 'denied') reader.denied(end.status, end.text);
      else reader.denied(status, text);
    }
    return this.running ? 'some' : 'all';
  }

  /** Catches up every part, the oldest first, and merges them. */
  private async catchUp(attempt: Attempt): Promise<End | undefined> {
    const parts = [...this.parts];
    for (const part of parts) {
      // Its readers may have left meanwhile.
      let more = part.readers.size > 0;
      while (more) {
        const { since } = part;
        const batch = await batchOf(attempt, channelsOf([part]), since, 0);
        if ('why' in batch) return batch;
        if (attempt.signal.aborted) return { why: 'over' };
        for (const word of batch.words) spread(word, part);
        more = batch.more && batch.next !== since && part.readers.size > 0;
        part.since = batch.next;
      }
    }
    // Readers added meanwhile wait for the next attempt; removed readers are in no part.
    const since = parts.find(({ since }) => isId(since))?.since ?? '';
    const readers = new Set(parts.flatMap((part) => [...part.readers]));
    const later = this.parts.filter((part) => !parts.includes(part));
    this.parts = [{ since, asked: true, readers }, ...later].filter((part) => part.readers.size > 0);
    return undefined;
  }

  private opened(): void {
    this.failures = 0;
    this.strikes = 0;
    this.proven = this.transport;
    // A forced transport is one subscription's choice, and no evidence against better ones.
    if (!this.settings.transport) this.world.remember(this.settings.url, this.transport);
    this.tell({ state: 'open', transport: this.transport });
  }

  /** Chooses the transport of the next attempt. Returns whether that may follow immediately. */
  private falls(end: End, heard: boolean): boolean {
    if (heard) return false;
    if (end.why !== 'unable') {
      // The server is unreachable, which is no evidence against the proven transport.
      this.transport = this.proven ?? this.top;
      return false;
    }
    if (this.transport === this.proven && ++this.strikes < STRIKES) return false;
    this.strikes = 0;
    const next = this.ladder[this.ladder.indexOf(this.transport) + 1];
    this.transport = next ?? this.top;
    return next !== undefined;
  }

  private pause(end: End): Promise<void> {
    const wish = end.why === 'over' ? wishOf(end.retryMs, this.failures) : undefined;
    const grown = Math.min(RETRY_MS * 2 ** this.failures++, RETRY_MS_MAX);
    // All clients lost their connections simultaneously. The random delay spreads their reconnects.
    const delayMs = wish === undefined ? grown * (0.5 + this.world.random()) : wish * (1 + this.world.random() / 2);
    this.tell({ state: 'waiting', transport: this.transport, delayMs });
    return new Promise((resolve) => {
      const forget = this.world.later(delayMs, resolve);
      this.endPause = () => {
        forget();
        resolve();
      };
    });
  }

  private carries(reader: Reader, live: Part): boolean {
    const asked = this.asked.split(',');
    return this.parts.every((part) => part === live) && reader.channels.every((channel) => asked.includes(channel));
  }

  private get top(): Transport {
    return this.ladder[0] ?? 'sse';
  }

  private tell(condition: Condition): void {
    this.condition = condition;
    this.onCondition(condition);
  }
}

/** Passes a unit of a stream to the readers of a part that do not have it yet. */
function spread(word: Word, part: Part): void {
  if (word.kind === 'answer') return;
  const id = word.kind === 'message' ? word.message.id : word.kind === 'gap' ? word.gap.to : word.id;
  part.since = id;
  for (const reader of part.readers) {
    const by = isId(reader.since) ? ahead(id, reader.since) : Infinity;
    // A stream that cannot resume begins after its gap, and sends its position before the gap.
    if (by < 0 || (by === 0 && word.kind !== 'gap')) continue;
    if (word.kind === 'gap') reader.gap(word.gap);
    if (word.kind === 'message' && reader.channels.includes(word.message.channel)) reader.take(word.message);
    // Updated last, so that a reader that observes it has already received everything up to here.
    reader.since = id;
  }
}

function channelsOf(parts: readonly Part[]): string[] {
  const readers = parts.flatMap((part) => [...part.readers]);
  return [...new Set(readers.flatMap((reader) => reader.channels))].sort();
}
