/**
 * A React hook.
 *
 *   import { useChannel } from '@encke/client/react';
 *   const { state, publish } = useChannel(`room/${id}`, (data) => add(data), { since: 'last:20', token: () => session.token });
 *
 * Callbacks and options may be written inline. All components of a user share one stream.
 */
import type { OnJson, OnMessage, State, SubscribeOptions, Subscription } from './encke.js';
import { type Channels } from './hook.js';
export interface Channel {
    /** The state of the stream; `closed` without a channel. */
    state: State;
    /** Publishes to the first channel; the same function in each render. */
    publish: Subscription['publish'];
}
/**
 * Subscribes while the component is mounted. Another channel, user (`token` as a text, `share`), `url`, `name` or `transport` replaces
 * the subscription; other callbacks are used from the next message on.
 */
export declare function useChannel(channels: Channels, onMessage: OnJson, options: SubscribeOptions & {
    json: true;
}): Channel;
export declare function useChannel(channels: Channels, onMessage: OnMessage, options?: SubscribeOptions): Channel;
