/**
 * The three transports, best first: an event stream, a WebSocket, long polls.
 *
 * A transport makes one attempt: it requests channels from a position, passes on every unit it receives, and returns the reason
 * of its end. It does not reconnect, does not wait between attempts and keeps no state: the line (line.ts) does.
 */

import { EventStream, isId, isRecord, parsed, wordOf, wordOfEvent, type Word } from './wire.js';

export const TRANSPORTS = ['sse', 'ws', 'poll'] as const;
export type Transport = (typeof TRANSPORTS)[number];

/** The environment of the client: a browser, or a test. */
export interface World {
  fetch(url: string, init: RequestInit): Promise<Response>;
  socket(url: string, protocol: string): WebSocket;
  /** Monotonic time in milliseconds. */
  now(): number;
  /** A random number from 0 to 1. */
  random(): number;
  /** Runs a function after a delay. Returns a function that cancels it. */
  later(ms: number, run: () => void): () => void;
  /** Reads a value that is kept as long as the tab. */
  recall(key: string): string | null;
  remember(key: string, value: string): void;
}

/** One attempt. */
export interface Attempt {
  world: World;
  /** The URL of the channels, with a slash at its end: `https://example.org/push/`. */
  url: string;
  channels: readonly string[];
  /** The start position: an id, `now`, `all`, `last:N` or a duration such as `10m`. */
  since: string;
  /** The member name, on channels with presence. */
  name?: string | undefined;
  token?: string | undefined;
  signal: AbortSignal;
  /** Called when bytes arrive: the server is alive. */
  heard(): void;
  say(word: Word): void;
}

/** The reason why an attempt ended. */
export type End =
  /** The server or the network ended the stream. `retryMs` is the server's retry time. */
  | { why: 'over'; retryMs?: number | undefined }
  /** This transport does not work here. */
  | { why: 'unable' }
  /** The server requires another token. `text` is the reason: the first line of the response, or empty. */
  | { why: 'token'; text: string }
  /** The server permanently rejects the request. */
  | { why: 'denied'; status: number; text: string };

/** Time for which the server may hold a poll. */
const POLL_WAIT_S = 25;
/** Silence after which a WebSocket is pinged: browsers do not show the server's pings to programs. */
const ASK_AFTER_MS = 25_000;
/** Close codes of a server that shuts down or restarts (RFC 6455, 7.4.1, and the IANA registry). */
const GOING_AWAY = [1001, 1012, 1013];

export const attempts: Record<Transport, (attempt: Attempt) => Promise<End>> = { sse, ws, poll };

/** Returns the URL of channels. Channel names contain no characters that need escaping. */
export function addressOf(url: string, channels: readonly string[], query: Record<string, string | undefined>): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => pair[1] !== undefined);
  const search = given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
  return `${url}${channels.join(',')}${search && '?'}${search}`;
}

/** Returns the header fields of a request. */
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
    // A broken stream ends like a finished one, and the server's retry time is still valid.
    const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
    if (done || !value) return { why: 'over', retryMs };
    attempt.heard();
    stream.push(decoder.decode(value, { stream: true }));
  }
}

/**
 * Passes on a unit of a stream. The initial position is passed on only if the client had none: if the stream does not begin at
 * the requested id, a gap follows, and before the gap nothing may count as received. The connection may break between the two.
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
      if (!opened) return void handshakeEnd(attempt).then(end, () => end({ why: 'over' }));
      if (code === 4401) return end({ why: 'token', text: reason });
      if (code === 4403) return end({ why: 'denied', status: 403, text: reason });
      const ms = /\d+/.exec(reason)?.[0];
      end({ why: 'over', retryMs: GOING_AWAY.includes(code) && ms ? Number(ms) : undefined });
    };
  });
}

/** Browsers hide the response to a rejected handshake. A poll that does not wait gets the same response, if the server rejects it. */
async function handshakeEnd(attempt: Attempt): Promise<End> {
  const batch = await batchOf(attempt, attempt.channels, 'now', 0);
  return 'why' in batch ? batch : { why: 'unable' };
}

async function poll(attempt: Attempt): Promise<End> {
  let since = attempt.since;
  // The first poll does not wait: it verifies the transport and returns the position.
  for (let wait = 0; ; wait = POLL_WAIT_S) {
    const batch = await batchOf(attempt, attempt.channels, since, wait);
    if ('why' in batch) return batch;
    attempt.heard();
    for (const word of batch.words) attempt.say(word);
    since = batch.next;
    if (attempt.signal.aborted) return { why: 'over' };
  }
}

/** The result of a poll. */
export interface Batch {
  words: Word[];
  /** The id from which to continue. */
  next: string;
  /** Whether more messages are available. */
  more: boolean;
}

/** Requests the messages after `since`; the server waits for one for up to `wait` seconds. */
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

/** Interprets a response without messages. */
export async function endOf(answer: Response): Promise<End> {
  const { status } = answer;
  const passing = status >= 500 || status === 408 || status === 425 || status === 429;
  if (status >= 400 && !passing) {
    const text = await textOf(answer);
    return status === 401 ? { why: 'token', text } : { why: 'denied', status, text };
  }
  void answer.body?.cancel().catch(() => {});
  return { why: 'over', retryMs: retryAfterMs(answer.headers.get('retry-after')) };
}

/** Reads the first line of a response. Returns an empty text if it is no plain text, such as the page of a proxy. */
export async function textOf(answer: Response): Promise<string> {
  if (!answer.headers.get('content-type')?.startsWith('text/plain')) return '';
  const text = await answer.text().catch(() => '');
  return (/.*/.exec(text.trim())?.[0] ?? '').slice(0, 200);
}

/** The least time that a server may ask for, and the most to which a shorter one grows. */
const WISH_MS = 1_000;
const WISH_MS_MAX = 30_000;

/**
 * The time for which a server asks. One below a second, such as a `Retry-After: 0` of a proxy, would let a client try hundreds of times a
 * second: then the time grows with the failures in a row.
 */
export function wishOf(ms: number | undefined, failures: number): number | undefined {
  return ms === undefined || ms >= WISH_MS ? ms : Math.min(WISH_MS * 2 ** failures, WISH_MS_MAX);
}

/** Parses `Retry-After` in seconds. Encke does not send the other form, a date. */
function retryAfterMs(value: string | null): number | undefined {
  return value !== null && /^\d+$/.test(value) ? Number(value) * 1000 : undefined;
}
