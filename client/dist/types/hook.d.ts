/** The common part of react.ts and vue.ts: which changes of a component replace its subscription, and which do not. */
import { type OnJson, type OnMessage, type State, type SubscribeOptions, type Subscription } from './encke.js';
/** The channels of a component. Without one, the component has no subscription. */
export type Channels = string | readonly string[] | null | undefined;
/** The current callbacks and options of a component. */
export interface Latest {
    onMessage: OnMessage | OnJson;
    options: SubscribeOptions;
}
/**
 * Returns a text that changes when a component needs another subscription. Functions do not count: the subscription calls the latest
 * ones. Nor does `since`, which is where a subscription starts.
 */
export declare function keyOf(channels: Channels, options: SubscribeOptions): string;
/** Subscribes to the channels of a key. Returns `undefined` if there are none. */
export declare function follow(key: string, latest: () => Latest, onState: (state: State) => void): Subscription | undefined;
/** Publishes by a subscription, if there is one. */
export declare const publishBy: (subscription: () => Subscription | undefined) => Subscription['publish'];
