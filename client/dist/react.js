// The client of Encke: built from client/src by client/build.mjs. MIT or Apache-2.0.

// src/react.ts
import { useEffect, useRef, useState } from "react";

// src/hook.ts
import { subscribe } from "./encke.js";
function keyOf(channels, options) {
  const { url, name, transport, token, share, json } = options;
  const fixed = typeof token === "function" ? [] : token;
  return JSON.stringify([[channels ?? []].flat(), url, name, transport, fixed, share, json]);
}
function follow(key, latest, onState) {
  const [channels] = JSON.parse(key);
  if (channels.length === 0) {
    onState("closed");
    return void 0;
  }
  const { options } = latest();
  const ask = () => {
    const { token } = latest().options;
    return typeof token === "function" ? token() : token;
  };
  return subscribe(channels, (data, message) => latest().onMessage(data, message), {
    ...options,
    token: typeof options.token === "function" ? ask : options.token,
    onGap: (gap) => latest().options.onGap?.(gap),
    onState(state, condition) {
      onState(state);
      latest().options.onState?.(state, condition);
    }
  });
}
var publishBy = (subscription) => async (data, options) => {
  const current = subscription();
  if (!current) throw new Error("useChannel: the component has no subscription: it is not mounted, or has no channel");
  return current.publish(data, options);
};

// src/react.ts
function useChannel(channels, onMessage, options = {}) {
  const [state, setState] = useState("connecting");
  const latest = useRef({ onMessage, options });
  const current = useRef(void 0);
  const [publish] = useState(() => publishBy(() => current.current));
  const key = keyOf(channels, options);
  useEffect(() => {
    latest.current = { onMessage, options };
  });
  useEffect(() => {
    const subscription = follow(key, () => latest.current, setState);
    current.current = subscription;
    return () => {
      current.current = void 0;
      subscription?.close();
    };
  }, [key]);
  return { state, publish };
}
export {
  useChannel
};
