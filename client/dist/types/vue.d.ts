/**
 * A Vue composable.
 *
 *   import { useChannel } from '@encke/client/vue';
 *   const { state, publish } = useChannel(() => `room/${props.id}`, (data) => lines.value.push(data), { since: 'last:20' });
 *
 * Channels and options may be refs or getters. All components of a user share one stream.
 */
import { type MaybeRefOrGetter, type Ref } from 'vue';
import type { OnJson, OnMessage, State, SubscribeOptions, Subscription } from './encke.js';
import { type Channels } from './hook.js';
export interface Channel {
    /** The state of the stream; `closed` without a channel. */
    state: Readonly<Ref<State>>;
    /** Publishes to the first channel. */
    publish: Subscription['publish'];
}
/**
 * Subscribes until the component is unmounted, or the effect scope ends. Another channel, user (`token` as a text, `share`), `url`,
 * `name` or `transport` replaces the subscription.
 */
export declare function useChannel(channels: MaybeRefOrGetter<Channels>, onMessage: OnJson, options: MaybeRefOrGetter<SubscribeOptions & {
    json: true;
}>): Channel;
export declare function useChannel(channels: MaybeRefOrGetter<Channels>, onMessage: OnMessage, options?: MaybeRefOrGetter<SubscribeOptions>): Channel;
