/** An entry of the access log: the object of its JSON format (docs/operations.md). */

export interface Entry {
  /** Counts the entries of this page; the log has no key that every entry has. */
  key: number;
  time_ms: number;
  fields: Record<string, unknown>;
}

/** Entries that the page keeps: enough to scroll back for a minute of a busy site. */
export const ENTRIES_MAX = 1000;

let next = 0;

export function entryOf(fields: Record<string, unknown>): Entry {
  const time = typeof fields.time === 'string' ? Date.parse(fields.time) : NaN;
  return { key: next++, time_ms: Number.isNaN(time) ? Date.now() : time, fields };
}

/** A field as text; empty if the entry does not have it. */
export function text(entry: Entry, name: string): string {
  const value = entry.fields[name];
  return value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** A field as number; `null` if the entry does not have it. */
export function figure(entry: Entry, name: string): number | null {
  const value = entry.fields[name];
  return typeof value === 'number' ? value : null;
}

export type Tone = 'good' | 'warn' | 'bad' | '';

/** The tone of a status; 0 is a connection that ended before a response. */
export function tone(status: number): Tone {
  if (status === 0 || status >= 500) return 'bad';
  if (status >= 400) return 'warn';
  return status >= 300 ? '' : 'good';
}

/** The path of a target, without its query. */
export const pathOf = (target: string): string => target.split('?')[0] ?? target;
