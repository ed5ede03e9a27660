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
export declare class Place {
    readonly member: Member;
    /** Counts the subscriptions of the page. */
    readonly number: number;
    line: SharedLine | undefined;
    closed: boolean;
    /** Whether the function returned a token of another identity after a rejection. A second rejection is final. */
    rejected: boolean;
    /**
     * Whether the line is open, but the reader has no position yet: the stream may be one without its channels, and what is published
     * now would not arrive.
     */
    waits: boolean;
    /** The member's reader, as the line knows it. */
    readonly reader: Reader;
    constructor(member: Member, 
    /** Counts the subscriptions of the page. */
    number: number);
    /** Passes on the condition of the line, unless it is open too early. Returns whether it did. */
    tell(condition: Condition): boolean;
    private arrived;
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
export type CarrierMaker = (plan: LinePlan, token: TokenSource, tell: (condition: Condition) => void) => Carrier;
export declare class Pool {
    private readonly world;
    private readonly carrierOf;
    private readonly warn;
    private readonly lines;
    private readonly calls;
    private readonly warned;
    private joined;
    constructor(world: World, carrierOf: CarrierMaker, warn: (text: string) => void);
    join(member: Member): Place;
    leave(place: Place): void;
    /** The server permanently rejects a member's channels. */
    deny(place: Place, status: number, text: string): void;
    wake(why: 'online' | 'visible'): void;
    private identify;
    /** Calls a place's function. If it fails, the identity is one that no other place has. */
    private call;
    private ask;
    private enter;
    private open;
    private exit;
    private close;
    private move;
    /**
     * Returns a token of the line's identity from its newest place that has one. A place whose function now returns a token of
     * another identity moves. `undefined` means that no place has a token.
     */
    private tokenOf;
    /**
     * Whether a place with this identity stays on its line. A line of this page alone takes the identity of its newest place, and the
     * others are checked: a renewed token without a subject is no reason for another stream.
     */
    private stays;
    private check;
    private count;
}
export {};
