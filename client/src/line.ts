/**
 * A line: one stream for any number of readers, kept up whatever happens to the network.
 *
 *              add, remove                              heard
 *   (none) ───────────────► connecting ─────────────────────────► open
 *      ▲                     ▲   │    ▲ delay over, wake            │ over, dead, wake
 *      │ the last one left   │   │    └────────── waiting ◄─────────┤
 *      └─────────────────────┘   │ 401 twice, 4xx                   │ add, remove: connecting at once
 *                                └────────► denied                  ▼
 *
 * Readers that begin at different places are parts. A stream has one position, so parts are caught up by polls that do
 * not wait, oldest first, and become one part before the stream opens: no reader misses a message, none gets one twice,
 * and a channel nobody has asked for yet cannot make a gap for the others.
 *
 * It is no network code: one attempt is transports.ts. It knows nothing of tabs: that is tabs.ts.
 */

import { attempts, batchOf, TRANSPORTS, type Attempt, type End, type Transport, type World } from './transports.js';
import { ahead, isId, type Gap, type Message, type Word } from './wire.js';

export type State = 'connecting' | 'open' | 'waiting' | 'denied' | 'closed';

/** How a line is. */
export interface Condition {
  state: State;
  transport: Transport;
  /** `waiting`: for how long. */
  delayMs?: number;
  /** `denied`: what the server answered. */
  status?: number;
}

/** Somebody who reads channels. */
export interface Reader {
  readonly channels: readonly string[];
  /** Where it begins; then, always, the id up to which it knows everything. The line moves it. */
  since: string;
  take(message: Message): void;
  gap(gap: Gap): void;
}

/** Where a line leads, and as whom. Lines with the same settings are the same. */
export interface Settings {
  url: string;
  name?: string | undefined;
  /** Only this one, come what may. */
  transport?: Transport | undefined;
}

/** A token for the next attempt; `fresh`: the last one was refused. `undefined`: there is none, or no other. */
export type TokenSource = (fresh: boolean) => Promise<string | undefined>;

/** A server says where it stands as soon as it is asked; a proxy that keeps this for itself will keep messages, too. */
const FIRST_BYTE_MS = 5_000;
/** The server is heard every 25 s at least: two of those may be late, the third is missing. */
const DEAD_MS = 60_000;
/** A stream heard of within this time needs no doubt when its page comes to the front: 25 s and some for the way. */
const FRESH_MS = 30_000;
/** Unless the server wishes otherwise. */
const RETRY_MS = 2_000;
const RETRY_MS_MAX = 30_000;
/** A way that has worked before is given up only after so many attempts without a byte. */
const STRIKES = 3;

/** How long a poll that does not wait may take: a ring of history on a slow phone. */
const CATCH_UP_MS = 20_000;

interface Part {
  since: string;
  /** It was asked for, as it was then: who comes now is no part of that answer. */
  asked: boolean;
  readonly readers: Set<Reader>;
}

/** Why an attempt was ended from this side. */
type Cause = 'changed' | 'woken' | 'silent' | 'dead';

export class Line {
  private parts: Part[] = [];
  private running = false;
  private changing = false;
  /** The channels of the present attempt. */
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
    const [live] = this.parts;
    if (live && this.condition.state === 'open' && reader.since === 'now' && this.carries(reader)) {
      reader.since = live.since;
      live.readers.add(reader);
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

  /** The network has changed, or the page came to the front: timers may have slept. */
  wake(why: 'online' | 'visible'): void {
    this.endPause();
    const stale = this.world.now() - this.heardAt > FRESH_MS;
    if (this.condition.state === 'open' && (why === 'online' || stale)) this.abort('woken');
  }

  /** Takes up what readers have come and gone, once for all those of one turn. */
  private change(): void {
    if (this.changing) return;
    this.changing = true;
    this.world.later(0, () => {
      this.changing = false;
      if (this.running && this.parts.length === 1 && channelsOf(this.parts).join() === this.asked) return;
      this.abort('changed');
      this.endPause();
      if (!this.running) void this.run();
    });
  }

  private async run(): Promise<void> {
    this.running = true;
    let refused = false;
    while (this.parts.length > 0) {
      const { end, cause, heard } = await this.attempt(refused);
      if (cause === 'changed' || cause === 'woken') continue;
      if (end.why === 'denied' || (end.why === 'token' && refused)) {
        const status = end.why === 'denied' ? end.status : 401;
        this.parts = [];
        this.running = false;
        return this.tell({ state: 'denied', transport: this.transport, status });
      }
      refused = end.why === 'token';
      if (refused) continue;
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
      expect(FIRST_BYTE_MS, 'silent');
      return attempts[this.transport](attempt);
    };
    // A fetch that fails rejects: there is no network, or it was given up from here.
    const end = await run().catch((): End => ({ why: 'over' }));
    forget();
    return { end: cause === 'silent' ? { why: 'unable' } : end, cause, heard };
  }

  /** Brings every part to now, the oldest first, and makes one of them. */
  private async catchUp(attempt: Attempt): Promise<End | undefined> {
    const parts = [...this.parts];
    for (const part of parts) {
      let more = true;
      while (more) {
        const { since } = part;
        const batch = await batchOf(attempt, channelsOf([part]), since, 0);
        if ('why' in batch) return batch;
        if (attempt.signal.aborted) return { why: 'over' };
        for (const word of batch.words) spread(word, part);
        more = batch.more && batch.next !== since;
        part.since = batch.next;
      }
    }
    // Whoever came meanwhile waits for the next attempt; whoever left is in none of the parts.
    const since = parts[0]?.since ?? '';
    const readers = new Set(parts.flatMap((part) => [...part.readers]));
    const later = this.parts.filter((part) => !parts.includes(part));
    this.parts = [{ since, asked: true, readers }, ...later].filter((part) => part.readers.size > 0);
    return undefined;
  }

  private opened(): void {
    this.failures = 0;
    this.strikes = 0;
    this.proven = this.transport;
    this.world.remember(this.settings.url, this.transport);
    this.tell({ state: 'open', transport: this.transport });
  }

  /** Chooses the transport of the next attempt; whether it may follow at once. */
  private falls(end: End, heard: boolean): boolean {
    if (heard) return false;
    if (end.why !== 'unable') {
      // Nobody is there at all: no reason to think ill of what has worked.
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
    const wish = end.why === 'over' ? end.retryMs : undefined;
    const grown = Math.min(RETRY_MS * 2 ** this.failures++, RETRY_MS_MAX);
    // Everybody was cut at the same moment, and shall not come back at the same one.
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

  private carries(reader: Reader): boolean {
    const asked = this.asked.split(',');
    return this.parts.length === 1 && reader.channels.every((channel) => asked.includes(channel));
  }

  private get top(): Transport {
    return this.ladder[0] ?? 'sse';
  }

  private tell(condition: Condition): void {
    this.condition = condition;
    this.onCondition(condition);
  }
}

/** Gives a word to those readers of a part to whom it is news. */
function spread(word: Word, part: Part): void {
  if (word.kind === 'answer') return;
  const id = word.kind === 'message' ? word.message.id : word.kind === 'gap' ? word.gap.to : word.id;
  part.since = id;
  for (const reader of part.readers) {
    const by = isId(reader.since) ? ahead(id, reader.since) : Infinity;
    // A stream that cannot resume begins after its gap, and says its position before it tells of it.
    if (by < 0 || (by === 0 && word.kind !== 'gap')) continue;
    if (word.kind === 'gap') reader.gap(word.gap);
    if (word.kind === 'message' && reader.channels.includes(word.message.channel)) reader.take(word.message);
    // Last, so that whoever hears of it knows that everything up to here has been given.
    reader.since = id;
  }
}

function channelsOf(parts: readonly Part[]): string[] {
  const readers = parts.flatMap((part) => [...part.readers]);
  return [...new Set(readers.flatMap((reader) => reader.channels))].sort();
}
