/** The objects of the API (`/api/v1`), as `openapi.json` describes them. */

import type { Reason } from './api';

export type Role = 'view' | 'admin';

/** A cell of a list: `null` when the value is unknown. */
export type Cell = string | number | boolean | null | Cell[];
export type Row = Record<string, Cell>;

export interface List {
  name: string;
  /** Rows that match the filter, of which `rows` has the first `limit`. */
  total: number;
  rows: Row[];
}

export interface VerbField {
  name: string;
  help: string;
  shape: 'text' | 'number' | 'flag' | 'choice';
  min?: number;
  max?: number;
  choices?: string[];
  optional: boolean;
}

export interface Verb {
  name: string;
  help: string;
  fields: VerbField[];
}

export interface FeatureVerbs {
  feature: string;
  verbs: Verb[];
}

/** The result of an action. */
export interface ActionResult {
  affected: number;
  notes: string[];
}

export interface ExplainStep {
  rule: string;
  /** `FILE:LINE`, or `null` if the rule is built in. */
  source: string | null;
}

export interface DiffLine {
  kind: 'same' | 'removed' | 'added';
  text: string;
}

export interface SettingsState {
  file: string | null;
  edit: boolean;
  edit_reason: string | null;
  edit_reason_code: Reason | null;
  included: string[];
  etag: string | null;
  file_differs: boolean;
  difference: DiffLine[];
  /** Keys whose new values take effect at the next start. */
  waiting_for_start: string[];
  overridden: { key: string; by: string }[];
  warnings: string[];
  running: Record<string, unknown>;
  /** Keys that the file sets. */
  set: string[];
}

/** A problem in a settings text. Lines and columns count from 1. */
export interface SettingsProblem {
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  key: string;
  message: string;
  hint: string | null;
  level: 'error' | 'warning';
}

export interface CheckResult {
  problems: SettingsProblem[];
  waiting_for_start: string[];
  difference: DiffLine[];
}

export interface CompletionItem {
  label: string;
  insert: string;
  help: string;
}

export interface Completion {
  /** Start of the text that an item replaces, in UTF-16 code units. */
  start: number;
  items: CompletionItem[];
}

export interface SettingsVersion {
  number: number;
  time_ms: number;
  user: string;
  address: string;
  summary: string;
  bytes: number;
  current: boolean;
}

export interface VersionText {
  number: number;
  text: string;
  difference: DiffLine[];
}

export interface Applied {
  etag: string;
  notes: string[];
}
