/**
 * The draft of the settings file: one text that forms and the editor change, checked by the server as it changes. It outlives the
 * page, so that a look at another page loses nothing.
 */

import { ApiError, get, send, spoken } from '../../lib/api';
import { difference } from '../../lib/diff';
import { sections, type Schema, type Section } from '../../lib/form';
import { t } from '../../lib/i18n.svelte';
import { isAdmin } from '../../lib/session.svelte';
import { parse, resolve, TomlFault, type TomlDocument, type TomlPath } from '../../lib/toml';
import { appendTable, moveTable, setValue } from '../../lib/toml-edit';
import type { Applied, CheckResult, Completion, DiffLine, SettingsProblem, SettingsState } from '../../lib/types';

/** A check for each letter would be one too many. */
const CHECK_DELAY_MS = 300;

/** Another user's version that stands in the way of this draft. */
export interface Conflict {
  text: string;
  etag: string | null;
  user: string | undefined;
  time_ms: number | undefined;
}

class Draft {
  state: SettingsState | null = $state.raw(null);
  sections: Section[] = $state.raw([]);
  error: unknown = $state(null);
  /** The text of the file that the draft began with, and its version. */
  base = $state('');
  etag: string | null = $state(null);
  text = $state('');
  loaded = $state(false);
  check: CheckResult | null = $state.raw(null);
  checkError: unknown = $state(null);
  checking = $state(false);
  conflict: Conflict | null = $state.raw(null);
  #crlf = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #checks = 0;

  readonly hasText = $derived(isAdmin() && this.loaded);
  readonly dirty = $derived(this.hasText && this.text !== this.base);
  readonly #document = $derived.by(() => document(this.text));
  readonly #baseDocument = $derived.by(() => document(this.base));
  /** Why the text cannot be shown as a form. */
  readonly fault = $derived(this.#document instanceof TomlFault ? this.#document : null);
  /** The values of the forms: the draft, or the settings in force for users without the right to read the file. */
  readonly values = $derived(this.hasText ? (this.#document instanceof TomlFault ? {} : this.#document.values) : (this.state?.running ?? {}));
  /** Why editing is impossible, or `null`. */
  readonly reason = $derived.by(() => {
    if (this.state === null) return null;
    if (!isAdmin()) return t('parts.view_only');
    const { edit, edit_reason, edit_reason_code } = this.state;
    if (edit) return null;
    return edit_reason === null ? t('settings.not_editable') : spoken(edit_reason, edit_reason_code);
  });
  readonly editable = $derived(this.state !== null && this.reason === null && this.hasText);
  readonly problems = $derived<SettingsProblem[]>(this.check?.problems ?? []);
  readonly errors = $derived(this.problems.filter((problem) => problem.level === 'error'));
  readonly difference = $derived<DiffLine[]>(this.check !== null && !this.checking ? this.check.difference : difference(this.base, this.text));

  /** Loads the state and, for an admin, the text. Changes that were not applied stay. */
  async load(): Promise<void> {
    try {
      const [state, schema] = await Promise.all([get<SettingsState>('/settings'), this.sections.length > 0 ? null : get<Schema>('/settings/schema')]);
      if (schema !== null) this.sections = sections(schema.data);
      if (isAdmin() && state.data.file !== null && !this.dirty) {
        const file = await get<{ text: string }>('/settings/file');
        this.#begin(file.data.text, file.etag ?? state.data.etag);
      }
      this.state = state.data;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
  }

  #begin(text: string, etag: string | null): void {
    this.#crlf = /\r\n/.test(text) && !/[^\r]\n/.test(text);
    this.base = text.replaceAll('\r\n', '\n');
    this.text = this.base;
    this.etag = etag;
    this.check = null;
    this.checkError = null;
    this.conflict = null;
    this.loaded = true;
  }

  /** The text as the file has it. */
  #written(): string {
    return this.#crlf ? this.text.replaceAll('\n', '\r\n') : this.text;
  }

  setText(text: string): void {
    if (text === this.text) return;
    this.text = text;
    this.checking = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.checkNow(), CHECK_DELAY_MS);
  }

  discard(): void {
    this.setText(this.base);
    this.conflict = null;
  }

  async checkNow(): Promise<void> {
    clearTimeout(this.#timer);
    const number = ++this.#checks;
    this.checking = true;
    try {
      const { data } = await send<CheckResult>('POST', '/settings/check', { text: this.#written() });
      if (number !== this.#checks) return;
      this.check = data;
      this.checkError = null;
    } catch (error) {
      if (number !== this.#checks) return;
      this.check = null;
      this.checkError = error;
    }
    this.checking = false;
  }

  async complete(offset: number): Promise<Completion> {
    return (await send<Completion>('POST', '/settings/complete', { text: this.text, offset })).data;
  }

  /** Writes and applies the draft. Returns the server's notes, or `null` if somebody else was faster (see `conflict`). */
  async apply(): Promise<string[] | null> {
    try {
      const { data } = await send<Applied>('PUT', '/settings/file', { text: this.#written() }, this.etag);
      await this.#reloaded();
      return data.notes;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 412) {
        await this.#loadConflict(error);
        return null;
      }
      const problems = error.problem.problems;
      if (error.status === 422 && Array.isArray(problems)) this.check = { problems: problems as SettingsProblem[], waiting_for_start: [], difference: this.difference };
      throw error;
    }
  }

  async #loadConflict(error: ApiError): Promise<void> {
    const file = await get<{ text: string }>('/settings/file');
    this.conflict = { text: file.data.text.replaceAll('\r\n', '\n'), etag: file.etag ?? error.problem.etag ?? null, user: error.problem.user, time_ms: error.problem.time_ms };
  }

  /** Goes on from the other user's version with `text`. */
  settle(text: string): void {
    const conflict = this.conflict;
    if (conflict === null) return;
    this.base = conflict.text;
    this.etag = conflict.etag;
    this.conflict = null;
    this.text = text;
    void this.checkNow();
  }

  /** Restores an earlier version. Throws `ApiError`. */
  async restore(number: number): Promise<string[]> {
    const { data } = await send<Applied>('POST', `/settings/history/${number}/restore`, undefined, this.etag);
    this.text = this.base;
    await this.#reloaded();
    return data.notes;
  }

  /** Reads the file again, as SIGHUP does. Throws `ApiError`. */
  async reload(): Promise<string[]> {
    const { data } = await send<{ notes: string[] }>('POST', '/settings/reload');
    await this.load();
    return data.notes;
  }

  async #reloaded(): Promise<void> {
    this.base = this.text;
    await this.load();
  }

  set(path: TomlPath, value: unknown): void {
    this.#change((text) => setValue(text, path, value));
  }

  append(path: TomlPath, entry: Record<string, unknown>): void {
    this.#change((text) => appendTable(text, path, entry));
  }

  move(path: TomlPath, from: number, to: number): void {
    this.#change((text) => moveTable(text, path, from, to));
  }

  #change(change: (text: string) => string): void {
    if (!this.editable || this.fault !== null) return;
    this.setText(change(this.text));
  }

  value(path: TomlPath): unknown {
    return resolve(this.values, path);
  }

  /** The value in the file, before the changes of this draft. */
  baseValue(path: TomlPath): unknown {
    return this.#baseDocument instanceof TomlFault ? undefined : resolve(this.#baseDocument.values, path);
  }

  /** The problems that stand in the lines of a setting. */
  problemsAt(path: TomlPath): SettingsProblem[] {
    const doc = this.#document;
    if (doc instanceof TomlFault || this.problems.length === 0) return [];
    return this.problems.filter((problem) => {
      const at = offsetOf(this.text, problem.line, problem.column);
      const entry = doc.sections.flatMap((section) => section.entries).find((each) => each.keyStart <= at && at < Math.max(each.valueEnd, each.keyStart + 1));
      return entry !== undefined && entry.path.length === path.length && entry.path.every((step, index) => step === path[index]);
    });
  }
}

function document(text: string): TomlDocument | TomlFault {
  try {
    return parse(text);
  } catch (error) {
    if (error instanceof TomlFault) return error;
    throw error;
  }
}

/** The offset of a line and a column, which count from 1. */
export function offsetOf(text: string, line: number, column: number): number {
  let start = 0;
  for (let at = 1; at < line; at++) {
    const next = text.indexOf('\n', start);
    if (next < 0) break;
    start = next + 1;
  }
  const end = text.indexOf('\n', start);
  return Math.min(start + column - 1, end < 0 ? text.length : end);
}

export const draft = new Draft();

// The draft outlives the settings page, so this warning does, too.
addEventListener('beforeunload', (event) => {
  if (draft.dirty) event.preventDefault();
});
