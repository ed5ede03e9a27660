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
import { type Transport, type World } from './transports.js';
import { type Gap, type Message } from './wire.js';
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
export declare class Line {
    private readonly world;
    private readonly settings;
    private readonly token;
    private readonly onCondition;
    private parts;
    /** The part whose messages the current attempt delivers. */
    private live;
    private running;
    private changing;
    /** The channels of the current attempt. */
    private asked;
    private abort;
    private endPause;
    private heardAt;
    private condition;
    private readonly ladder;
    private transport;
    /** The transport that has worked, here or earlier in this tab. */
    private proven;
    private strikes;
    private failures;
    constructor(world: World, settings: Settings, token: TokenSource, onCondition: (condition: Condition) => void);
    get state(): Condition;
    add(reader: Reader): void;
    remove(reader: Reader): void;
    /** Handles a network change, or a page that became visible: timers may have been suspended. */
    wake(why: 'online' | 'visible'): void;
    /** Applies additions and removals of readers, once per turn. */
    private change;
    private run;
    private attempt;
    /**
     * After a rejection, removes the readers whose channels are rejected. Returns which readers were rejected: `none` if the requests
     * failed. If each reader's channels are accepted alone, only together they are not: then all are rejected.
     */
    private sift;
    /** Catches up every part, the oldest first, and merges them. */
    private catchUp;
    private opened;
    /** Chooses the transport of the next attempt. Returns whether that may follow immediately. */
    private falls;
    private pause;
    private carries;
    private get top();
    private tell;
}
