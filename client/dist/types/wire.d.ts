/**
 * The wire format: envelopes, event streams, ids. Pure functions and one parser, without I/O and clock.
 *
 * Every transport carries the same envelope:
 *   {"id","channel","event","type","time","data"}   data64 instead of data when the payload is not UTF-8
 */
/** A message. */
export interface Message {
    /** The position in the stream; `since` with this id resumes after the message. */
    id: string;
    channel: string;
    /** The event name. Names that begin with `encke.` come from the server. */
    event?: string;
    /** The media type. */
    type?: string;
    /** The time of publication. */
    time?: Date;
    /** Text, or bytes if it is not UTF-8. */
    data: string | Uint8Array;
}
/** Published messages that are lost. */
export interface Gap {
    /** The last id before the gap. */
    from: string;
    /** The last lost id: messages after it are complete. */
    to: string;
    /** The server's keyword for the reason. */
    reason?: string;
}
/** A unit of a stream. */
export type Word = {
    kind: 'message';
    message: Message;
} | {
    kind: 'gap';
    gap: Gap;
}
/** The position of the stream, without a message. */
 | {
    kind: 'position';
    id: string;
}
/** A response to a command on a WebSocket. */
 | {
    kind: 'answer';
    id?: string;
    status?: number;
    text?: string;
};
/** Reads an envelope that was parsed from JSON. Returns `undefined`, which callers skip, if it is not one. */
export declare function wordOf(envelope: unknown): Word | undefined;
/** Reads an event of an event stream of envelopes. */
export declare function wordOfEvent(event: StreamEvent): Word | undefined;
/** Parses a JSON text. Returns `undefined` if it is invalid. */
export declare function parsed(json: string): unknown;
export declare function isRecord(value: unknown): value is Record<string, unknown>;
/**
 * Returns the distance by which an id is ahead of another. An id of another epoch is infinitely far ahead.
 *
 * An id has the form `EPOCH-OFFSET`, comma-joined for several streams; offsets grow within an epoch. Ids are opaque to
 * programs, but this client ships with the server.
 */
export declare function ahead(id: string, of: string): number;
/** Whether a start position is an id, not a keyword such as `now`, `last:5` or `10m`. */
export declare function isId(since: string): boolean;
/** An event of an event stream. `data` is missing if only a position (`id:`) was sent. */
export interface StreamEvent {
    id?: string;
    event?: string;
    data?: string;
}
/**
 * Parses text/event-stream (WHATWG HTML, 9.2.6) in pieces of any size.
 *
 * Unlike EventSource the parser also reports blocks without data if they have an id, by which the server sends its position.
 */
export declare class EventStream {
    private readonly onEvent;
    private readonly onRetry;
    private rest;
    private begun;
    private afterCr;
    private lines;
    private event;
    private id;
    constructor(onEvent: (event: StreamEvent) => void, onRetry: (ms: number) => void);
    push(piece: string): void;
    private line;
    private dispatch;
}
