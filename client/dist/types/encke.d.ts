/**
 * Subscribe to the channels of an Encke server, and publish to them.
 *
 *   import { subscribe } from '/encke.js';
 *   const news = subscribe('news', (data, { id, time }) => show(data), { since: 'last:10' });
 *   await news.publish('hello');
 *   news.close();
 *
 * All subscriptions of a user, in a page and in other tabs of its origin, share one stream. It resumes by id, so no message is lost or
 * repeated while the server keeps the messages. After that, `onGap` reports the lost range.
 */
import { type Condition, type State } from './line.js';
import { type Token } from './pool.js';
import { PublishError, type Payload, type Published, type PublishOptions } from './publish.js';
import { type Transport } from './transports.js';
import { type Gap, type Message } from './wire.js';
export { PublishError };
export type { Condition, Gap, Message, Payload, Published, PublishOptions, State, Token, Transport };
/** Receives the payload, as text or as bytes if it is not UTF-8, and its message. */
export type OnMessage = (data: string | Uint8Array, message: Message) => void;
/** Receives the parsed value, or the payload if it is not JSON, and its message. */
export type OnJson = (value: unknown, message: Message) => void;
export interface SubscribeOptions {
    /** The URL of the channels; by default `/push/` of the page's origin. */
    url?: string | undefined;
    /** Where to start: `now` (default), `all`, `last:N`, a duration such as `10m`, or the id of the last message seen. */
    since?: string | undefined;
    /**
     * Sent as `Authorization: Bearer`. A function is called for each connection and publish, and again when its token is rejected. It may
     * be written inline: subscriptions whose functions return tokens of the same user with the same rights share a stream.
     */
    token?: Token | undefined;
    /** Use only this transport; by default the best that works: `sse`, else `ws`, else `poll`. */
    transport?: Transport | undefined;
    /** The member name, on channels with presence. */
    name?: string | undefined;
    /**
     * Whether other tabs may share the stream. By default they may, unless a function returns a token without a subject (`sub`). A text
     * names the user: subscriptions with the same text share a stream, and their tokens are not compared.
     */
    share?: boolean | string | undefined;
    /** Parse each payload as JSON for `onMessage`. A payload that is no JSON stays text or bytes. */
    json?: boolean | undefined;
    /** Messages were lost: those after `from`, up to `to`. */
    onGap?: ((gap: Gap) => void) | undefined;
    /** The stream is `connecting`, `open`, `waiting` to reconnect, or was permanently `denied`, with `status` and `text`. */
    onState?: ((state: State, condition: Condition) => void) | undefined;
}
export interface Subscription {
    /** Publishes to the first channel, or to another one. Retries until the server has the message, without duplicates. */
    publish(data: Payload, options?: PublishOptions): Promise<Published>;
    /** Ends this subscription; the last one closes the stream. */
    close(): void;
}
/**
 * Calls `onMessage` for each message of these channels, in the order of publication. With `json: true` it receives parsed values.
 */
export declare function subscribe(channels: string | readonly string[], onMessage: OnJson, options: SubscribeOptions & {
    json: true;
}): Subscription;
export declare function subscribe(channels: string | readonly string[], onMessage: OnMessage, options?: SubscribeOptions): Subscription;
