/**
 * Publishing: a POST that is retried until it is known to have succeeded, without duplicates.
 *
 * Each message has a key that the server remembers for two minutes, so that a retry after a lost response publishes nothing. An
 * outbox sends one message at a time, in the order of the calls.
 */
import type { TokenSource } from './line.js';
import { type World } from './transports.js';
/** Optional properties of a message. */
export interface PublishOptions {
    /** The channel; by default the first one subscribed to. */
    channel?: string;
    /** The event name, by which readers distinguish messages. Names that begin with `encke.` are reserved for the server. */
    event?: string;
    /** The media type; by default text, bytes, or that of the Blob. */
    type?: string;
    /** The idempotency key: the server ignores a repeated key within two minutes. By default a new one for each message. */
    key?: string;
}
/** A published message. */
export interface Published {
    /** Empty if the server has queued the message and assigns its id later: in a cluster that cannot be reached. */
    id: string;
    /** Number of subscribers, as far as the responding server knows. */
    subscribers: number;
}
/** The server rejected the message, or could not be reached for too long. */
export declare class PublishError extends Error {
    /** The status of the response, or 0 without a response. */
    readonly status: number;
    constructor(
    /** The status of the response, or 0 without a response. */
    status: number, text: string);
}
/** Text, bytes (Blob, ArrayBuffer, typed array), or a value that is sent as JSON: an object, list, number, boolean or null. */
export type Payload = string | number | boolean | null | object;
export declare class Outbox {
    private readonly world;
    private readonly url;
    private last;
    private endPause;
    private count;
    constructor(world: World, url: string);
    /** Publishes after all earlier messages. The payload is read at once: an object may change later. */
    publish(channel: string, data: Payload, options: PublishOptions, token: TokenSource): Promise<Published>;
    /** Ends the wait before a retry: the network is back. */
    wake(): void;
    private deliver;
    private send;
    /** Returns a unique key: 52 random bits, and a count. */
    private newKey;
    private pause;
}
/** Returns an error for the first option that a function does not have: a misspelled name would be ignored. */
export declare function unknownOption(of: string, options: object, known: object): TypeError | undefined;
