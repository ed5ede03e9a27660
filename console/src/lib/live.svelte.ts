/** Live data: one event stream per page. */

import { API, translated, type Problem } from './api';
import { refresh, state as session } from './session.svelte';

/** The object of a list. */
export interface ListData<Row = Record<string, unknown>> {
  watch: string;
  name: string;
  total: number;
  rows: Row[];
}

export interface LogData {
  watch: string;
  /** Entries that the server dropped because this page was too slow. */
  dropped: number;
  entries: Record<string, unknown>[];
}

export interface NoticeData {
  notices: { time_ms: number; level: string; text: string }[];
}

/** Handlers of the events. `opened` runs after each (re)connection, so that a page can fill a gap. */
export interface Handlers {
  opened?: () => void;
  overview?: (data: import('./overview').Overview) => void;
  list?: (data: ListData) => void;
  log?: (data: LogData) => void;
  notices?: (data: NoticeData) => void;
}

/** The state of the stream that the page's head shows. `staleSince`: time of the failure, in unix ms; `problem`: its cause. */
export const stream: { open: boolean; wanted: boolean; staleSince: number | null; retryMs: number | null; problem: string | null } = $state({
  open: false,
  wanted: false,
  staleSince: null,
  retryMs: null,
  problem: null,
});

const RETRY_MIN_MS = 1000;
const RETRY_MAX_MS = 30_000;
/** A stream that is silent for this long, in intervals, is broken: a proxy may keep a dead connection open. */
const SILENT_INTERVALS = 10;
const SILENT_MIN_MS = 15_000;

/**
 * Watches sections of the server while the calling component exists and the page is visible.
 *
 * `watches`: `overview`, `lists/NAME?query`, `log?query`, `notices`; a function is evaluated again when the state that it
 * reads changes. Values inside a query must be percent-encoded (URLSearchParams). Call it while a component is created, and only
 * once per page. An empty array closes the stream.
 */
export function watch(watches: string[] | (() => string[]), everyMs: number, handlers: Handlers): void {
  const list = $derived(typeof watches === 'function' ? watches() : watches);
  const key = $derived(list.join('\n'));
  $effect(() => {
    const wanted = key ? key.split('\n') : [];
    if (wanted.length === 0) return;
    const source = new LiveStream(wanted, everyMs, handlers);
    return () => source.close();
  });
}

class LiveStream {
  readonly #url: string;
  readonly #handlers: Handlers;
  /** 0: events come only when something happens, as those of the log. */
  readonly #silentMs: number;
  #source: EventSource | null = null;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #closed = false;
  readonly #onVisibility = (): void => (document.hidden ? this.#pause() : this.#open());

  constructor(watches: string[], everyMs: number, handlers: Handlers) {
    const query = watches.map((watch) => `watch=${encodeURIComponent(watch)}`).join('&');
    this.#url = `${API}/live?${query}&every=${everyMs}`;
    this.#handlers = handlers;
    const regular = watches.some((watch) => watch === 'overview' || watch.startsWith('lists/'));
    this.#silentMs = regular ? Math.max(SILENT_MIN_MS, everyMs * SILENT_INTERVALS) : 0;
    document.addEventListener('visibilitychange', this.#onVisibility);
    stream.wanted = true;
    if (!document.hidden) this.#open();
  }

  close(): void {
    this.#closed = true;
    document.removeEventListener('visibilitychange', this.#onVisibility);
    this.#pause();
    stream.wanted = false;
    stream.staleSince = null;
  }

  /** Closes the stream of a hidden page. Its data counts as fresh again after the next event. */
  #pause(): void {
    clearTimeout(this.#retry);
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
    this.#failures = 0;
    stream.open = false;
    stream.retryMs = null;
  }

  #open(): void {
    clearTimeout(this.#retry);
    if (this.#closed || this.#source) return;
    const source = new EventSource(this.#url);
    this.#source = source;
    source.onopen = () => {
      this.#fresh();
      this.#handlers.opened?.();
    };
    source.onerror = () => this.#failed();
    for (const name of ['overview', 'list', 'log', 'notices'] as const) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        this.#fresh();
        const handler = this.#handlers[name] as ((data: unknown) => void) | undefined;
        handler?.(JSON.parse(event.data));
      });
    }
    // The server stops, or restarts: the next attempt decides.
    source.addEventListener('end', () => this.#failed());
    this.#listenForSilence();
  }

  #fresh(): void {
    this.#failures = 0;
    stream.open = true;
    stream.staleSince = null;
    stream.retryMs = null;
    stream.problem = null;
    this.#listenForSilence();
  }

  #listenForSilence(): void {
    clearTimeout(this.#silence);
    if (this.#silentMs > 0) this.#silence = setTimeout(() => this.#failed(), this.#silentMs);
  }

  /** The browser would reconnect at a fixed pace, and never after an HTTP error: this class does both. */
  #failed(): void {
    if (this.#closed) return;
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
    stream.open = false;
    stream.staleSince ??= Date.now();
    const wait = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** this.#failures) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    stream.retryMs = Date.now() + wait;
    this.#retry = setTimeout(() => void this.#again(), wait);
  }

  async #again(): Promise<void> {
    // A stream does not report its status: a session that ended shows here.
    await refresh();
    if (session.session && this.#failures > 1) await this.#findProblem();
    if (session.session && !document.hidden) this.#open();
  }

  /** Reads the response that the browser hides: for example that a list does not exist on this server. */
  async #findProblem(): Promise<void> {
    const abort = new AbortController();
    try {
      const response = await fetch(this.#url, { signal: abort.signal, cache: 'no-store' });
      if (response.ok) abort.abort();
      else stream.problem = translated((await response.json()) as Problem).detail ?? String(response.status);
    } catch {
      // Unreachable, or no problem details: the next attempt decides.
    }
  }
}

/** Reads a watch's query into the form of `watch`: `query('lists/connections', { sort: '-age_s', limit: 50 })`. */
export function query(name: string, parameters: Record<string, string | number | null | undefined>): string {
  const text = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== '') text.set(key, String(value));
  }
  const encoded = text.toString();
  return encoded ? `${name}?${encoded}` : name;
}
