/**
 * The lines of a page. Subscriptions share a line if they have the same settings, and tokens of the same user with the same
 * rights.
 *
 *   subscribe ─► place ─ token ─► identity ─► shared line ─ carrier ─► server
 *                           ▲                      │
 *                           └── another identity ──┘ at a reconnect: the place moves, and resumes from its position
 *
 * A token that a function returns is compared by content, because a function written inline is a new one for each component.
 * The page learns the identity by calling the function. While that fails, the place has a line of its own, which retries.
 */

import type { Condition, Reader, Settings, TokenSource } from './line.js';
import type { Carrier } from './tabs.js';
import type { World } from './transports.js';
import { isId, isRecord, parsed } from './wire.js';

export type Token = string | (() => string | undefined | Promise<string | undefined>);

/** The part of a subscription that selects its line, and its callbacks. */
export interface Member {
  readonly settings: Settings;
  readonly token: Token | undefined;
  readonly share: boolean | string | undefined;
  readonly reader: Reader;
  listen(condition: Condition): void;
}

/** A member's place in the pool. */
export class Place {
  line: SharedLine | undefined;
  closed = false;
  /** Whether the function returned a token of another identity after a rejection. A second rejection is final. */
  rejected = false;
  /**
   * Whether the line is open, but the reader has no position yet: the stream may be one without its channels, and what is published
   * now would not arrive.
   */
  waits = false;
  /** The member's reader, as the line knows it. */
  readonly reader: Reader;

  constructor(
    readonly member: Member,
    /** Counts the subscriptions of the page. */
    readonly number: number,
  ) {
    const { reader } = member;
    const arrived = () => this.arrived();
    this.reader = {
      channels: reader.channels,
      get since() {
        return reader.since;
      },
      set since(id) {
        reader.since = id;
        arrived();
      },
      take: (message) => reader.take(message),
      gap: (gap) => reader.gap(gap),
      denied: (status, text) => reader.denied(status, text),
    };
  }

  /** Passes on the condition of the line, unless it is open too early. Returns whether it did. */
  tell(condition: Condition): boolean {
    this.waits = condition.state === 'open' && !isId(this.member.reader.since);
    if (!this.waits) this.member.listen(condition);
    return !this.waits;
  }

  private arrived(): void {
    const condition = this.line?.condition;
    if (this.waits && condition?.state === 'open') this.tell(condition);
  }
}

/** The key of a line, and the data from which its carrier is made. */
export interface LinePlan {
  key: string;
  settings: Settings;
  /** Whether the line has a token. */
  hasToken: boolean;
  /** Whether other tabs share the line. */
  tabs: boolean;
}

interface SharedLine extends LinePlan {
  /** Whether `share` names the user. Then tokens are not compared. */
  named: boolean;
  readonly places: Set<Place>;
  carrier: Carrier;
  condition: Condition | undefined;
  held: Held | undefined;
}

/** The last token, and when it was received. */
interface Held {
  token: string | undefined;
  atMs: number;
}

/** A token's identity. */
interface Identity {
  text: string;
  /** Whether the token names its user, so that other tabs may share its line. */
  subject: boolean;
}

export type CarrierMaker = (plan: LinePlan, token: TokenSource, tell: (condition: Condition) => void) => Carrier;

/**
 * A token is used again within this time: each component calls its own function when the page loads, and one of these tokens opens
 * the stream.
 */
const HELD_MS = 5_000;
/** Maximum delay of a new subscription, so that those whose functions are still running open the same stream. */
const GATHER_MS = 100;
/** Browsers open six connections to a server over HTTP/1.1. */
const STREAMS_WARN = 3;

export class Pool {
  private readonly lines = new Map<string, SharedLine>();
  private readonly calls = new Set<Promise<unknown>>();
  private readonly warned = new Set<string>();
  private joined = 0;

  constructor(
    private readonly world: World,
    private readonly carrierOf: CarrierMaker,
    private readonly warn: (text: string) => void,
  ) {}

  join(member: Member): Place {
    const place = new Place(member, this.joined++);
    if (typeof member.token === 'function' && typeof member.share !== 'string') void this.identify(place);
    else this.enter(place, identityOf(member.token));
    return place;
  }

  leave(place: Place): void {
    place.closed = true;
    this.exit(place);
  }

  /** The server permanently rejects a member's channels. */
  deny(place: Place, status: number, text: string): void {
    const transport = place.line?.condition?.transport ?? 'sse';
    this.leave(place);
    place.member.listen({ state: 'denied', transport, status, text });
  }

  wake(why: 'online' | 'visible'): void {
    for (const line of this.lines.values()) line.carrier.wake(why);
  }

  private async identify(place: Place): Promise<void> {
    const call = this.call(place);
    this.calls.add(call);
    const { identity, held } = await call;
    this.calls.delete(call);
    if (this.calls.size > 0) {
      const late = new Promise<void>((resolve) => this.world.later(GATHER_MS, resolve));
      await Promise.race([Promise.all(this.calls), late]);
    }
    if (!place.closed) this.enter(place, identity, held);
  }

  /** Calls a place's function. If it fails, the identity is one that no other place has. */
  private async call(place: Place): Promise<{ identity: Identity; held: Held | undefined }> {
    try {
      const held = await this.ask(place);
      return { identity: claimsOf(held.token), held };
    } catch {
      return { identity: { text: `failed ${place.number}`, subject: false }, held: undefined };
    }
  }

  private async ask({ member: { token } }: Place): Promise<Held> {
    const text = typeof token === 'function' ? await token() : token;
    return { token: text, atMs: this.world.now() };
  }

  private enter(place: Place, identity: Identity, held?: Held): void {
    const { member } = place;
    const plan = planOf(member, identity);
    let line = this.lines.get(plan.key);
    const fresh = !line;
    line ??= this.open(plan, typeof member.share === 'string');
    if (held) line.held = held;
    place.line = line;
    line.places.add(place);
    if (line.condition) {
      queueMicrotask(() => {
        const { condition } = line;
        if (place.line === line && condition && !place.tell(condition)) member.listen({ ...condition, state: 'connecting' });
      });
    }
    line.carrier.add(place.reader);
    if (fresh) this.count(member.settings.url);
  }

  private open(plan: LinePlan, named: boolean): SharedLine {
    const tell = (condition: Condition) => {
      line.condition = condition;
      // A rejection is reported to each reader.
      if (condition.state === 'denied') return;
      for (const place of line.places) {
        if (condition.state === 'open') place.rejected = false;
        place.tell(condition);
      }
    };
    const token: TokenSource = (fresh) => this.tokenOf(line, fresh);
    const shared = { ...plan, named, places: new Set<Place>(), condition: undefined, held: undefined };
    const line: SharedLine = Object.assign(shared, { carrier: this.carrierOf(plan, token, tell) });
    this.lines.set(plan.key, line);
    return line;
  }

  private exit(place: Place): void {
    const { line } = place;
    if (!line) return;
    place.line = undefined;
    line.places.delete(place);
    line.carrier.remove(place.reader);
    // A component that replaces another in the same turn takes over its line.
    if (line.places.size === 0) this.world.later(0, () => line.places.size === 0 && this.close(line));
  }

  private close(line: SharedLine): void {
    if (this.lines.get(line.key) !== line) return;
    this.lines.delete(line.key);
    line.carrier.close?.();
  }

  private move(place: Place, identity: Identity, held?: Held): void {
    this.exit(place);
    this.enter(place, identity, held);
  }

  /**
   * Returns a token of the line's identity from its newest place that has one. A place whose function now returns a token of
   * another identity moves. `undefined` means that no place has a token.
   */
  private async tokenOf(line: SharedLine, fresh: boolean): Promise<string | undefined> {
    const { held } = line;
    if (held && !fresh && this.world.now() - held.atMs < HELD_MS) return held.token;
    let same: Held | undefined;
    let failure: unknown;
    for (const place of [...line.places].sort((a, b) => b.number - a.number)) {
      const answer = await this.ask(place).catch((error: unknown) => void (failure = error));
      if (!answer || place.line !== line) continue;
      const identity = claimsOf(answer.token);
      if (!line.named && typeof place.member.token === 'function' && !this.stays(place, line, identity)) {
        if (fresh && place.rejected) this.deny(place, 401, 'the server rejected two different tokens');
        else this.move(place, identity, answer);
        place.rejected = fresh;
        continue;
      }
      // A component may still have the token that was rejected, and another one its successor.
      same = answer;
      if (!fresh || !held || answer.token !== held.token) break;
    }
    if (same) line.held = same;
    else if (failure !== undefined && line.places.size > 0) throw failure;
    return same?.token;
  }

  /**
   * Whether a place with this identity stays on its line. A line of this page alone takes the identity of its newest place, and the
   * others are checked: a renewed token without a subject is no reason for another stream.
   */
  private stays(place: Place, line: SharedLine, identity: Identity): boolean {
    const plan = planOf(place.member, identity);
    if (plan.key === line.key) return true;
    if (line.tabs || plan.tabs || this.lines.has(plan.key)) return false;
    this.lines.delete(line.key);
    line.key = plan.key;
    this.lines.set(line.key, line);
    for (const other of line.places) if (other !== place) void this.check(other, line);
    return true;
  }

  private async check(place: Place, line: SharedLine): Promise<void> {
    const { token } = place.member;
    const { identity, held } = typeof token === 'function' ? await this.call(place) : { identity: identityOf(token), held: undefined };
    if (place.line === line && planOf(place.member, identity).key !== line.key) this.move(place, identity, held);
  }

  private count(url: string): void {
    const { origin } = new URL(url);
    if (this.warned.has(origin)) return;
    const streams = [...this.lines.values()].filter((line) => line.places.size > 0 && new URL(line.settings.url).origin === origin);
    if (streams.length < STREAMS_WARN) return;
    this.warned.add(origin);
    this.warn(
      `encke: this page has ${streams.length} streams to ${origin}, and over HTTP/1.1 a browser opens six connections to a server. ` +
        'Subscriptions share a stream if url, name, transport, share and the claims of the token are the same. ' +
        "If their tokens differ but belong to one user with the same rights, name the user: share: 'USER'. Close unused subscriptions.",
    );
  }
}

function planOf({ settings, token, share }: Member, identity: Identity): LinePlan {
  const hasToken = token !== undefined;
  const tabs = typeof share === 'string' || (share ?? (typeof token !== 'function' || identity.subject));
  const user = typeof share === 'string' ? ['share', share] : ['token', identity.text];
  const key = JSON.stringify([settings.url, settings.name, settings.transport, tabs, hasToken, ...user]);
  return { key, settings, hasToken, tabs };
}

/** The identity of a fixed token: its text. It cannot be renewed, so no other token may take its place. */
function identityOf(token: Token | undefined): Identity {
  return { text: typeof token === 'string' ? token : '', subject: false };
}

/**
 * The identity of a token that may be renewed: its claims without the ones that differ in each token (RFC 7519, 4.1). The server
 * verifies them; here they only tell tokens apart. A token that is no JWT is its own identity.
 */
function claimsOf(token: string | undefined): Identity {
  const [head, body = '', signature] = token?.split('.') ?? [];
  let claims: unknown;
  try {
    claims = parsed(atob(body.replace(/-/g, '+').replace(/_/g, '/')));
  } catch {
    // No base64.
  }
  if (signature === undefined || !isRecord(claims)) return identityOf(token);
  const { exp, nbf, iat, jti, ...rest } = claims;
  return { text: JSON.stringify([head, rest]), subject: typeof rest['sub'] === 'string' };
}
