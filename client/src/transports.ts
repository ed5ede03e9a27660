/**
 * The three ways to hear of messages, best first: an event stream, a WebSocket, long polls.
 *
 * A transport is one attempt: it asks for channels from a position on, tells every word it hears, and ends with the
 * reason why. It does not reconnect, does not wait between attempts and keeps nothing: that is the line's part (line.ts).
 */

import { EventStream, isId, isRecord, parsed, wordOf, wordOfEvent, type Word } from './wire.js';

export const TRANSPORTS = ['sse', 'ws', 'poll'] as const;
export type Transport = (typeof TRANSPORTS)[number];

/** What surrounds the client: a browser, or a test. */
export interface World {
  fetch(url: string, init: RequestInit): Promise<Response>;
  socket(url: string, protocol: string): WebSocket;
  /** Milliseconds that only grow. */
  now(): number;
  /** From 0 to 1. */
  random(): number;
  /** Runs something later; the answer forgets about it. */
  later(ms: number, run: () => void): () => void;
  /** What is known of this browser's way to the server, kept as long as the tab. */
  recall(key: string): string | null;
  remember(key: string, value: string): void;
}

/** One attempt. */
export interface Attempt {
  world: World;
  /** Where channels are, with a slash at its end: `https://example.org/push/`. */
  url: string;
  channels: readonly string[];
  /** Where to begin: an id, `now`, `all`, `last:N` or a duration such as `10m`. */
  since: string;
  /** Under which name to be present, where the channel shows who is there. */
  name?: string | undefined;
  token?: string | undefined;
  signal: AbortSignal;
  /** Something came: the server is there. */
  heard(): void;
  say(word: Word): void;
}

/** Why an attempt is over. */
export type End =
  /** The server said it is over, or the network did. `retryMs`: when the server wants to see us again. */
  | { why: 'over'; retryMs?: number | undefined }
  /** This transport cannot work here. */
  | { why: 'unable' }
  /** The server wants another token. */
  | { why: 'token' }
  /** The server will never want us here. */
  | { why: 'denied'; status: number };

/** How long the server may hold a poll. */
const POLL_WAIT_S = 25;
/** After how much silence a WebSocket is asked whether it lives: pings of the server are not shown to programs. */
const ASK_AFTER_MS = 25_000;
/** Closing because the server goes: RFC 6455, 7.4.1, and the registry. */
const GOING_AWAY = [1001, 1012, 1013];

export const attempts: Record<Transport, (attempt: Attempt) => Promise<End>> = { sse, ws, poll };

/** The address of channels. Names need no escaping: their grammar has nothing that would. */
export function addressOf(url: string, channels: readonly string[], query: Record<string, string | undefined>): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined);
  const search = given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
  return `${url}${channels.join(',')}${search && '?'}${search}`;
}

/** The fields of a request. */
export function fieldsOf(accept: string, token: string | undefined): Record<string, string> {
  return token === undefined ? { accept } : { accept, authorization: `Bearer ${token}` };
}

async function sse(attempt: Attempt): Promise<End> {
  const { world, url, channels, since, name, token, signal } = attempt;
  const answer = await world.fetch(addressOf(url, channels, { since, name, envelope: '' }), {
    headers: fieldsOf('text/event-stream', token),
    cache: 'no-store',
    signal,
  });
  if (answer.status !== 200) return endOf(answer);
  if (!answer.body || !answer.headers.get('content-type')?.startsWith('text/event-stream')) return { why: 'unable' };

  let retryMs: number | undefined;
  const stream = new EventStream(
    (event) => {
      const word = wordOfEvent(event);
      if (word) say(attempt, word);
    },
    (ms) => (retryMs = ms),
  );
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const reader = answer.body.getReader();
  for (;;) {
    // A stream that breaks off is over as one that ends is, but the server's wish is still known.
    const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
    if (done || !value) return { why: 'over', retryMs };
    attempt.heard();
    stream.push(decoder.decode(value, { stream: true }));
  }
}

/**
 * Tells a word of a stream. Where a stream begins matters only to those who did not know: where it does not begin at the
 * id that was asked for, a gap follows, and until that is told nothing may be taken for seen. The line can break between.
 */
function say(attempt: Attempt, word: Word): void {
  if (word.kind !== 'position' || !isId(attempt.since)) attempt.say(word);
}

function ws(attempt: Attempt): Promise<End> {
  const { world, url, channels, since, name, token, signal } = attempt;
  const address = addressOf(url.replace(/^http/, 'ws'), channels, { since, name, access_token: token });
  let socket: WebSocket;
  try {
    socket = world.socket(address, 'encke.v1');
  } catch {
    return Promise.resolve({ why: 'unable' });
  }
  return new Promise((resolve) => {
    let opened = false;
    let forget = () => {};
    const listen = () => {
      forget();
      forget = world.later(ASK_AFTER_MS, () => {
        if (opened) socket.send('{"op":"ping","ref":0}');
      });
    };
    const end = (end: End) => {
      forget();
      signal.removeEventListener('abort', leave);
      resolve(end);
    };
    const leave = () => {
      socket.close();
      end({ why: 'over' });
    };
    signal.addEventListener('abort', leave);
    socket.onopen = () => {
      opened = true;
      listen();
    };
    socket.onmessage = ({ data }) => {
      listen();
      attempt.heard();
      const word = wordOf(parsed(String(data)));
      if (word?.kind === 'answer' && word.id !== undefined) say(attempt, { kind: 'position', id: word.id });
      else if (word && word.kind !== 'answer') say(attempt, word);
    };
    socket.onclose = ({ code, reason }) => {
      // What a refused handshake was answered with is hidden from programs: a poll will be told.
      if (!opened) return end({ why: 'unable' });
      if (code === 4401) return end({ why: 'token' });
      if (code === 4403) return end({ why: 'denied', status: 403 });
      const ms = /\d+/.exec(reason)?.[0];
      end({ why: 'over', retryMs: GOING_AWAY.includes(code) && ms ? Number(ms) : undefined });
    };
  });
}

async function poll(attempt: Attempt): Promise<End> {
  let since = attempt.since;
  // The first answer comes at once: it proves the way and tells the position.
  for (let wait = 0; ; wait = POLL_WAIT_S) {
    const batch = await batchOf(attempt, attempt.channels, since, wait);
    if ('why' in batch) return batch;
    attempt.heard();
    for (const word of batch.words) attempt.say(word);
    since = batch.next;
    if (attempt.signal.aborted) return { why: 'over' };
  }
}

/** What a poll was answered with. */
export interface Batch {
  words: Word[];
  /** The id to go on from. */
  next: string;
  /** Whether there is more already. */
  more: boolean;
}

/** Asks for what came after `since`; waits for it up to `wait` seconds. */
export async function batchOf(
  attempt: Attempt,
  channels: readonly string[],
  since: string,
  wait: number,
): Promise<Batch | End> {
  const { world, url, name, token, signal } = attempt;
  const answer = await world.fetch(addressOf(url, channels, { since, wait: String(wait), name }), {
    headers: fieldsOf('application/json', token),
    cache: 'no-store',
    signal,
  });
  const said = answer.headers.get('encke-id');
  if (answer.status === 204) {
    const words: Word[] = said === null ? [] : [{ kind: 'position', id: said }];
    return { words, next: said ?? since, more: false };
  }
  if (answer.status !== 200) return endOf(answer);
  const body = parsed(await answer.text());
  if (!isRecord(body) || !Array.isArray(body['messages'])) return { why: 'unable' };
  const words = body['messages'].map(wordOf).filter((word) => word !== undefined);
  const gap = wordOf(body['gap']);
  if (gap) words.unshift(gap);
  const next = typeof body['next'] === 'string' ? body['next'] : since;
  if (next !== since) words.push({ kind: 'position', id: next });
  return { words, next, more: Number(body['more']) > 0 };
}

/** What an answer that carries no messages means. */
export function endOf(answer: Response): End {
  const { status } = answer;
  void answer.body?.cancel().catch(() => {});
  if (status === 401) return { why: 'token' };
  const passing = status >= 500 || status === 408 || status === 425 || status === 429;
  if (status >= 400 && !passing) return { why: 'denied', status };
  return { why: 'over', retryMs: retryAfterMs(answer.headers.get('retry-after')) };
}

/** `Retry-After` in seconds; its other form, a date, is not what Encke sends. */
function retryAfterMs(value: string | null): number | undefined {
  return value !== null && /^\d+$/.test(value) ? Number(value) * 1000 : undefined;
}
