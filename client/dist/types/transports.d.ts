/**
 * The three transports, best first: an event stream, a WebSocket, long polls.
 *
 * A transport makes one attempt: it requests channels from a position, passes on every unit it receives, and returns the reason
 * of its end. It does not reconnect, does not wait between attempts and keeps no state: the line (line.ts) does.
 */
import { type Word } from './wire.js';
export declare const TRANSPORTS: readonly ['sse', 'ws', 'poll'];
export type Transport = (typeof TRANSPORTS)[number];
/** The environment of the client: a browser, or a test. */
export interface World {
    fetch(url: string, init: RequestInit): Promise<Response>;
    socket(url: string, protocol: string): WebSocket;
    /** Monotonic time in milliseconds. */
    now(): number;
    /** A random number from 0 to 1. */
    random(): number;
    /** Runs a function after a delay. Returns a function that cancels it. */
    later(ms: number, run: () => void): () => void;
    /** Reads a value that is kept as long as the tab. */
    recall(key: string): string | null;
    remember(key: string, value: string): void;
}
/** One attempt. */
export interface Attempt {
    world: World;
    /** The URL of the channels, with a slash at its end: `https://example.org/push/`. */
    url: string;
    channels: readonly string[];
    /** The start position: an id, `now`, `all`, `last:N` or a duration such as `10m`. */
    since: string;
    /** The member name, on channels with presence. */
    name?: string | undefined;
    token?: string | undefined;
    signal: AbortSignal;
    /** Called when bytes arrive: the server is alive. */
    heard(): void;
    say(word: Word): void;
}
/** The reason why an attempt ended. */
export type End = 
/** The server or the network ended the stream. `retryMs` is the server's retry time. */
{
    why: 'over';
    retryMs?: number | undefined;
}
/** This transport does not work here. */
 | {
    why: 'unable';
}
/** The server requires another token. `text` is the reason: the first line of the response, or empty. */
 | {
    why: 'token';
    text: string;
}
/** The server permanently rejects the request. */
 | {
    why: 'denied';
    status: number;
    text: string;
};
export declare const attempts: Record<Transport, (attempt: Attempt) => Promise<End>>;
/** Returns the URL of channels. Channel names contain no characters that need escaping. */
export declare function addressOf(url: string, channels: readonly string[], query: Record<string, string | undefined>): string;
/** Returns the header fields of a request. */
export declare function fieldsOf(accept: string, token: string | undefined): Record<string, string>;
/** The result of a poll. */
export interface Batch {
    words: Word[];
    /** The id from which to continue. */
    next: string;
    /** Whether more messages are available. */
    more: boolean;
}
/** Requests the messages after `since`; the server waits for one for up to `wait` seconds. */
export declare function batchOf(attempt: Attempt, channels: readonly string[], since: string, wait: number): Promise<Batch | End>;
/** Interprets a response without messages. */
export declare function endOf(answer: Response): Promise<End>;
/** Reads the first line of a response. Returns an empty text if it is no plain text, such as the page of a proxy. */
export declare function textOf(answer: Response): Promise<string>;
/**
 * The time for which a server asks. One below a second, such as a `Retry-After: 0` of a proxy, would let a client try hundreds of times a
 * second: then the time grows with the failures in a row.
 */
export declare function wishOf(ms: number | undefined, failures: number): number | undefined;
