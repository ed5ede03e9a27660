/**
 * A React hook.
 *
 *   import { useChannel } from '@encke/client/react';
 *   const { state, publish } = useChannel(`room/${id}`, (data) => add(data), { since: 'last:20', token: () => session.token });
 *
 * Callbacks and options may be written inline. All components of a user share one stream.
 */

import { useEffect, useRef, useState } from 'react';

import type { OnJson, OnMessage, State, SubscribeOptions, Subscription } from './encke.js';
import { follow, keyOf, publishBy, type Channels, type Latest } from './hook.js';

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
export function useChannel(channels: Channels, onMessage: OnJson, options: SubscribeOptions & { json: true }): Channel;
export function useChannel(channels: Channels, onMessage: OnMessage, options?: SubscribeOptions): Channel;
export function useChannel(channels: Channels, onMessage: OnMessage | OnJson, options: SubscribeOptions = {}): Channel {
  const [state, setState] = useState<State>('connecting');
  const latest = useRef<Latest>({ onMessage, options });
  const current = useRef<Subscription>(undefined);
  const [publish] = useState(() => publishBy(() => current.current));
  const key = keyOf(channels, options);
  useEffect(() => {
    latest.current = { onMessage, options };
  });
  useEffect(() => {
    const subscription = follow(key, () => latest.current, setState);
    current.current = subscription;
    return () => {
      current.current = undefined;
      subscription?.close();
    };
  }, [key]);
  return { state, publish };
}
