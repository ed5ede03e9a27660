/**
 * A Vue composable.
 *
 *   import { useChannel } from '@encke/client/vue';
 *   const { state, publish } = useChannel(() => `room/${props.id}`, (data) => lines.value.push(data), { since: 'last:20' });
 *
 * Channels and options may be refs or getters. All components of a user share one stream.
 */

import { shallowReadonly, shallowRef, toValue, watch, type MaybeRefOrGetter, type Ref } from 'vue';

import type { OnJson, OnMessage, State, SubscribeOptions, Subscription } from './encke.js';
import { follow, keyOf, publishBy, type Channels } from './hook.js';

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
export function useChannel(
  channels: MaybeRefOrGetter<Channels>,
  onMessage: OnJson,
  options: MaybeRefOrGetter<SubscribeOptions & { json: true }>,
): Channel;
export function useChannel(
  channels: MaybeRefOrGetter<Channels>,
  onMessage: OnMessage,
  options?: MaybeRefOrGetter<SubscribeOptions>,
): Channel;
export function useChannel(
  channels: MaybeRefOrGetter<Channels>,
  onMessage: OnMessage | OnJson,
  options: MaybeRefOrGetter<SubscribeOptions> = {},
): Channel {
  const state = shallowRef<State>('connecting');
  let current: Subscription | undefined;
  const start = (key: string, _: string | undefined, onCleanup: (end: () => void) => void) => {
    // A server that renders the page has no stream.
    if (typeof document === 'undefined') return;
    const subscription = follow(key, () => ({ onMessage, options: toValue(options) }), (now) => (state.value = now));
    current = subscription;
    onCleanup(() => ((current = undefined), subscription?.close()));
  };
  watch(() => keyOf(toValue(channels), toValue(options)), start, { immediate: true });
  return { state: shallowReadonly(state), publish: publishBy(() => current) };
}
