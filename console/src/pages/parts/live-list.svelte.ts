/** The rows of a list, live: they stand still while somebody points at one of them. */

import { ApiError, get } from '../../lib/api';
import type { ListData } from '../../lib/live.svelte';
import type { List, Row } from '../../lib/types';

export class LiveList {
  rows: Row[] = $state.raw([]);
  total = $state(0);
  error: unknown = $state(null);
  /** Rows have arrived. Without them nothing is known, not even that there are none. */
  loaded = $state(false);
  /** The server rejects the query; a stream of it would fail, too. Without a connection, the stream tries again. */
  readonly rejected = $derived(this.error instanceof ApiError && this.error.status > 0);
  /** The reasons for which rows stand still. */
  holds: Record<string, boolean> = $state({});
  readonly held = $derived(Object.values(this.holds).some(Boolean));
  #next: List | null = null;
  #path = '';
  #abort: AbortController | undefined;

  /** Loads the list at once: an event stream does not report that a query is invalid. */
  async load(path: string): Promise<void> {
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    this.#path = path;
    this.#next = null;
    try {
      const { data } = await get<List>(`/${path}`, abort.signal);
      if (abort.signal.aborted) return;
      this.#show(data);
      this.error = null;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.error = error;
    }
  }

  /** Takes an event. Returns whether it belongs to this list. */
  receive(data: ListData): boolean {
    if (data.watch !== this.#path) return false;
    const list = data as unknown as List;
    this.error = null;
    if (this.held) this.#next = list;
    else this.#show(list);
    return true;
  }

  hold(reason: string, on: boolean): void {
    this.holds[reason] = on;
    if (!this.held && this.#next !== null) {
      this.#show(this.#next);
      this.#next = null;
    }
  }

  #show(list: List): void {
    this.rows = list.rows;
    this.total = list.total;
    this.loaded = true;
  }
}

export const text = (row: Row, column: string): string => {
  const cell = row[column];
  return cell === null || cell === undefined ? '' : String(cell);
};
export const figure = (row: Row, column: string): number | null => {
  const cell = row[column];
  return typeof cell === 'number' ? cell : null;
};
