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
import { type Condition, type Reader, type Settings, type TokenSource } from './line.js';
import type { World } from './transports.js';
import { type Gap, type Message } from './wire.js';
/** Delivers messages to readers: a line, or a connection to one. */
export interface Carrier {
    add(reader: Reader): void;
    remove(reader: Reader): void;
    wake(why: 'online' | 'visible'): void;
    /** Releases the locks and ports of a carrier without readers. */
    close?(): void;
}
/** A command of a page. */
type Ask = {
    ask: 'join';
    reader: number;
    channels: readonly string[];
    since: string;
} | {
    ask: 'leave';
    reader: number;
} | {
    ask: 'wake';
    why: 'online' | 'visible';
} | {
    ask: 'token';
    token: string | undefined;
    failed: boolean;
} | {
    ask: 'bye';
};
/** A notification to a page. */
type Tell = {
    tell: 'message';
    reader: number;
    message: Message;
} | {
    tell: 'gap';
    reader: number;
    gap: Gap;
} | {
    tell: 'denied';
    reader: number;
    status: number;
    text: string;
} | {
    tell: 'begins';
    reader: number;
    since: string;
} | {
    tell: 'condition';
    condition: Condition;
} | {
    tell: 'token';
    fresh: boolean;
};
interface Pipe {
    post(ask: Ask): void;
    /** This page needs the line no longer. */
    close(): void;
}
/** Creates a pipe. `again` is called when the peer has changed and has no state of this page. */
export type PipeMaker = (tell: (tell: Tell) => void, again: () => void) => Pipe;
/** The end of the pipes at the line. */
export declare class Counter {
    private readonly world;
    private readonly pages;
    private readonly line;
    private onToken;
    constructor(world: World, settings: Settings, hasToken: boolean);
    /** Whether no page uses the line. */
    get idle(): boolean;
    /** Ends the line: another tab takes over. */
    close(): void;
    private forget;
    hear(from: string, ask: Ask, post: (tell: Tell) => void): void;
    /** Requests a token from the newest page, which most likely still exists, and from the others if it has none. */
    private askToken;
    private askPage;
}
/** The end of a pipe at the page. */
export declare class Remote implements Carrier {
    private readonly token;
    private readonly onCondition;
    private readonly readers;
    private readonly pipe;
    private count;
    constructor(make: PipeMaker, token: TokenSource, onCondition: (condition: Condition) => void);
    add(reader: Reader): void;
    remove(reader: Reader): void;
    wake(why: 'online' | 'visible'): void;
    close(): void;
    private join;
    private hear;
}
/** Creates a pipe to the worker that runs this script. `failed` is called if there cannot be one. */
export declare function workerPipe(script: string, key: string, settings: Settings, hasToken: boolean, failed: () => void): PipeMaker;
/** Serves the tabs in the worker. */
export declare function serveTabs(scope: EventTarget, world: World): void;
/** Creates a pipe to the tab that holds the lock, which may be this one. */
export declare function electedPipe(key: string, make: () => Counter): PipeMaker;
export {};
