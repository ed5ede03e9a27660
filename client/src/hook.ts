/** The common part of react.ts and vue.ts: which changes of a component replace its subscription, and which do not. */

import { subscribe, type OnJson, type OnMessage, type State, type SubscribeOptions, type Subscription } from './encke.js';

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
export function keyOf(channels: Channels, options: SubscribeOptions): string {
  const { url, name, transport, token, share, json } = options;
  const fixed = typeof token === 'function' ? [] : token;
  return JSON.stringify([[channels ?? []].flat(), url, name, transport, fixed, share, json]);
}

/** Subscribes to the channels of a key. Returns `undefined` if there are none. */
export function follow(key: string, latest: () => Latest, onState: (state: State) => void): Subscription | undefined {
  const [channels] = JSON.parse(key) as [string[]];
  if (channels.length === 0) {
    onState('closed');
    return undefined;
  }
  const { options } = latest();
  const ask = () => {
    const { token } = latest().options;
    return typeof token === 'function' ? token() : token;
  };
  return subscribe(channels, (data, message) => (latest().onMessage as OnJson)(data, message), {
    ...options,
    token: typeof options.token === 'function' ? ask : options.token,
    onGap: (gap) => latest().options.onGap?.(gap),
    onState(state, condition) {
      onState(state);
      latest().options.onState?.(state, condition);
    },
  });
}

/** Publishes by a subscription, if there is one. */
export const publishBy = (subscription: () => Subscription | undefined): Subscription['publish'] =>
  async (data, options) => {
    const current = subscription();
    if (!current) throw new Error('useChannel: the component has no subscription: it is not mounted, or has no channel');
    return current.publish(data, options);
  };
